// Formulas that are wider than their page become smaller, to six tenths at most; what is wider still scrolls by itself.
(() => {
  const fit = () => {
    for (const formula of document.querySelectorAll("mjx-container[display=true]")) {
      formula.style.fontSize = "";
      for (let tries = 0; tries < 4 && formula.scrollWidth > formula.clientWidth; tries++) {
        const size = parseFloat(getComputedStyle(formula).fontSize);
        const smaller = (0.98 * size * formula.clientWidth) / formula.scrollWidth;
        formula.style.fontSize = `${Math.max(smaller, 0.6 * 19)}px`;
      }
    }
  };
  window.addEventListener("load", async () => {
    if (!window.MathJax || !MathJax.startup) return;
    await MathJax.startup.promise;
    fit();
    window.addEventListener("resize", fit);
  });
})();
