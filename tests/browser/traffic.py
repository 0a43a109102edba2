"""What a page costs its network."""

from typing import Any


class Traffic:
    """The requests that reach the server, and the bytes of their answers with header fields."""

    def __init__(self) -> None:
        self._requests: dict[str, str] = {}
        self.bytes = 0

    @classmethod
    async def of(cls, page: Any) -> "Traffic":
        traffic, devtools = cls(), await page.context.new_cdp_session(page)
        await devtools.send("Network.enable")
        devtools.on("Network.responseReceived", traffic._answered)
        devtools.on("Network.loadingFinished", traffic._finished)
        return traffic

    def _answered(self, event: Any) -> None:
        response = event["response"]
        if not response.get("fromDiskCache") and not response.get("fromPrefetchCache"):
            self._requests[event["requestId"]] = response["url"]

    def _finished(self, event: Any) -> None:
        if event["requestId"] in self._requests:
            self.bytes += event["encodedDataLength"]

    @property
    def urls(self) -> list[str]:
        return list(self._requests.values())
