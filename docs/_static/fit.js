// Names in tables may break after a sign and before a capital, rather than within a word.
(() => {
  const breaks = /(?<=[._(=/,])(?=\S)|(?<=[a-z])(?=[A-Z])/;
  const soften = (node) => {
    for (const child of [...node.childNodes]) {
      if (child.nodeType !== Node.TEXT_NODE) soften(child);
      else child.replaceWith(...child.data.split(breaks).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
    }
  };
  window.addEventListener("load", () => document.querySelectorAll("td code, th code").forEach(soften));
})();

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
