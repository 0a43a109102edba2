"""The data that crosses a boundary between services, typed once for both sides."""
