"""A page that is alone with what it may ask, and whose errors are counted."""

HANG = 300_000  # milliseconds of waiting that count as a hang: a busy machine takes its time
NOISE = ("Could not restore the debugger state",)  # JupyterLab's own, whatever is in the notebook


class Guard:
    """A page that may ask nothing of the world outside and log no error."""

    def __init__(self, browser, allowed, **options):
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(HANG)
        self.page = self.context.new_page()
        self.outside, self.errors = [], []
        self.page.on("request", lambda r: self._request(r.url, allowed))
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))

    def _request(self, url, allowed):
        if not url.startswith((*allowed, "data:", "blob:", "about:")):
            self.outside.append(url)

    def _console(self, message):
        if message.type == "error" and not message.text.startswith(NOISE):
            self.errors.append(f"{message.text} ({message.location['url']})")

    def check(self):
        assert not self.outside, self.outside
        assert not self.errors, self.errors

    def close(self):
        self.context.close()
        self.check()
