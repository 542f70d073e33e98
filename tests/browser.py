"""A headless Chromium that is driven through a pipe, by its DevTools protocol: no other package is
needed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
REWIRE = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
    " os.execvp(sys.argv[3], sys.argv[3:])"
)


def find() -> str | None:
    """The browser that is installed, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a browser; use it as a context."""

    def __init__(self, program: str, folder: Path) -> None:
        """Start the program; what it writes goes to the folder."""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        theirs = [os.dup(end) for end in (theirs_in, theirs_out)]
        for end in theirs:
            os.set_inheritable(end, True)
        command = [
            sys.executable,
            "-c",
            REWIRE,
            *map(str, theirs),
            program,
            *OPTIONS,
            f"--user-data-dir={folder}",
        ]
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen(command, pass_fds=theirs, stdout=log, stderr=log)
        for end in (theirs_in, theirs_out, *theirs):
            os.close(end)
        self._buffer, self._count, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        self.call("Page.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: object) -> dict:
        """Call a method of the protocol and wait for what it returns."""
        self._count += 1
        message: dict = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda received: received.get("id") == self._count)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def show(self, address: str, width: int, height: int = 1000) -> None:
        """Show a page in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=address)
        self._wait(lambda received: received.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> object:
        """The value of a JavaScript expression, awaited if it is a promise."""
        options = {"awaitPromise": True, "returnByValue": True}
        result = self.call("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in result:
            raise RuntimeError(
                result["exceptionDetails"]["exception"].get("description", "JavaScript failed")
            )
        return result["result"].get("value")

    def picture(self, path: Path) -> None:
        """A picture of the whole page, as PNG."""
        shown = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shown["data"]))

    def _wait(self, is_it) -> dict:
        while True:
            while b"\0" not in self._buffer:
                received = os.read(self._in, 1 << 20)
                if not received:
                    raise RuntimeError("the browser ended")
                self._buffer += received
            first, _, self._buffer = self._buffer.partition(b"\0")
            message = json.loads(first)
            if is_it(message):
                return message
