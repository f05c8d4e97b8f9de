# The displays of notebooks. It follows notebook.py in one program.

# The modules that programs import from IPython, where it is not installed.


class _Data:
    """What one of the types of data shows itself as: text, a file or an address."""

    mime, binary = "text/plain", False

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if data is not None and not isinstance(data, (str, bytes)) and hasattr(data, "__fspath__"):
            data = str(data)
        if isinstance(data, str) and filename is None and url is None and self._is_place(data):
            if data.startswith(("http:", "https:")):
                data, url = None, data
            else:
                data, filename = None, data
        if filename is not None:
            with open(filename, "rb" if self.binary else "r") as f:
                data = f.read()
        elif data is None and url is not None:
            data = self._fetch(url)
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}

    def _is_place(self, data):
        return len(data) < 1000 and "\n" not in data and (data.startswith(("http:", "https:")) or self.binary and _load("os").path.exists(data))

    def _fetch(self, url):
        import urllib.request

        with urllib.request.urlopen(url) as answer:
            data = answer.read()
        return data if self.binary else data.decode("utf-8", "replace")

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: self.data}


def _kind(name, mime, binary=False, **more):
    return type(name, (_Data,), dict({"mime": mime, "binary": binary}, **more))


def _math(self, include=None, exclude=None):
    return {"text/latex": "$\\displaystyle %s$" % self.data.strip("$")}


def _image_mime(data, filename):
    for begins, mime in ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp")):
        if data[: len(begins)] == begins:
            return mime
    return "image/png"


def ipython(it):
    """Returns the modules by their names."""
    kind = type(_load("sys"))
    html = _load("html")

    class Image(_Data):
        binary = True

        def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None, **options):
            if isinstance(data, str) and data.startswith(("http:", "https:")):
                data, url = None, data
            self.width, self.height = width, height
            if url is not None and not embed:
                self.data, self.url, self.filename, self.metadata = None, url, None, {}
            else:
                super().__init__(data, url, filename)

        def _repr_mimebundle_(self, include=None, exclude=None):
            if self.data is None:
                size = "".join(' %s="%s"' % (k, v) for k, v in (("width", self.width), ("height", self.height)) if v)
                return {"text/html": '<img src="%s"%s/>' % (html.escape(self.url), size)}
            data = self.data.encode() if isinstance(self.data, str) else self.data
            return {_image_mime(data, self.filename): data}

    class JSON(_Data):
        mime = "application/json"

        def _is_place(self, data):
            return False

    class IFrame:
        def __init__(self, src, width="100%", height=150, **options):
            self.src, self.width, self.height = src, width, height

        def _repr_html_(self):
            return '<iframe src="%s" width="%s" height="%s" frameborder="0"></iframe>' % (html.escape(self.src), self.width, self.height)

    class FileLink:
        def __init__(self, path, **options):
            self.path = str(path)

        def __repr__(self):
            return self.path

    class Code(_Data):
        def __init__(self, data=None, url=None, filename=None, language=None):
            super().__init__(data, url, filename)

        def __repr__(self):
            return self.data

        def _repr_mimebundle_(self, include=None, exclude=None):
            return {"text/plain": self.data, "text/html": "<pre>%s</pre>" % html.escape(self.data)}

    class Media(_Data):
        binary = True
        tag, default = "audio", "audio/wav"

        def __init__(self, data=None, filename=None, url=None, rate=None, embed=None, mimetype=None, **options):
            if rate is not None and not isinstance(data, (str, bytes, type(None))):
                data = _wave(data, rate)
            if isinstance(data, str) and data.startswith(("http:", "https:")):
                data, url = None, data
            if url is not None and not embed:
                self.data, self.url, self.filename, self.metadata = None, url, None, {}
            else:
                super().__init__(data, url, filename)
            guess = _load("mimetypes").guess_type(self.filename or self.url or "")[0]
            self.mimetype = mimetype or guess or self.default

        def _repr_mimebundle_(self, include=None, exclude=None):
            where = self.url
            if self.data is not None:
                where = "data:%s;base64,%s" % (self.mimetype, _load("base64").b64encode(self.data).decode())
            return {"text/html": '<%s controls src="%s"></%s>' % (self.tag, html.escape(where), self.tag)}

    types = {
        "Image": Image, "JSON": JSON, "IFrame": IFrame, "FileLink": FileLink, "FileLinks": FileLink, "Code": Code,
        "Audio": type("Audio", (Media,), {}), "Video": type("Video", (Media,), {"tag": "video", "default": "video/mp4"}),
        "HTML": _kind("HTML", "text/html"), "Markdown": _kind("Markdown", "text/markdown"), "Latex": _kind("Latex", "text/latex"),
        "SVG": _kind("SVG", "image/svg+xml", _is_place=lambda self, data: data.endswith(".svg") or _Data._is_place(self, data)),
        "Javascript": _kind("Javascript", "application/javascript"), "Pretty": _kind("Pretty", "text/plain"),
        "TextDisplayObject": _kind("TextDisplayObject", "text/plain"), "DisplayObject": _Data,
        "Math": _kind("Math", "text/latex", _repr_mimebundle_=_math),
    }
    functions = displays(it)

    def only(mime):
        def display_as(*values, raw=False, **options):
            for v in values:
                it.display(v, raw=False) if not raw else it.display({mime: v}, raw=True)

        return display_as

    for name, mime in (("html", "text/html"), ("markdown", "text/markdown"), ("svg", "image/svg+xml"), ("png", "image/png"),
                       ("jpeg", "image/jpeg"), ("latex", "text/latex"), ("json", "application/json"),
                       ("javascript", "application/javascript"), ("pretty", "text/plain")):
        functions["display_" + name] = only(mime)

    def module(name, values, package=False):
        m = kind(name)
        m.__dict__.update(values)
        m.__file__ = "<execbroker IPython>"
        if package:
            m.__path__ = []
        return m

    show = dict(types, **functions)
    get = {"get_ipython": it.shell}
    display = module("IPython.display", show)
    return {
        "IPython": module("IPython", dict(get, display=display, version_info=(9, 0, 0, ""), __version__="9.0.0"), True),
        "IPython.display": display,
        "IPython.core": module("IPython.core", {}, True),
        "IPython.core.display": module("IPython.core.display", show),
        "IPython.core.display_functions": module("IPython.core.display_functions", functions),
        "IPython.core.getipython": module("IPython.core.getipython", get),
        "IPython.core.error": module("IPython.core.error", {"UsageError": UsageError}),
        "IPython.core.pylabtools": module("IPython.core.pylabtools", {"backend2gui": {}}),
        "IPython.core.interactiveshell": module("IPython.core.interactiveshell", {"InteractiveShell": Shell}),
    }


def displays(it):
    """Returns the functions that show something."""

    def clear_output(wait=False):
        """Output that was shown cannot be removed."""

    def publish_display_data(data, metadata=None, source=None, *, transient=None, update=False, **options):
        it.display(data, raw=True, display_id=(transient or {}).get("display_id"), update=update)

    def update_display(value, *, display_id, **options):
        it.display(value, display_id=display_id, update=True, **options)

    return {
        "display": it.display, "clear_output": clear_output, "publish_display_data": publish_display_data,
        "update_display": update_display, "DisplayHandle": DisplayHandle, "set_matplotlib_formats": lambda *a, **k: None,
        "set_matplotlib_close": lambda *a, **k: None,
    }


class DisplayHandle:
    """What display(..., display_id=...) returns."""

    it = None

    def __init__(self, display_id=None):
        self.display_id = display_id or _load("binascii").hexlify(_load("os").urandom(16)).decode()

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id

    def display(self, value, **options):
        self.it.display(value, display_id=self.display_id, **options)

    def update(self, value, **options):
        self.it.display(value, display_id=self.display_id, update=True, **options)


def _wave(samples, rate):
    """Returns a WAV file of numbers, of one channel or of several."""
    struct = _load("struct")
    channels = [list(c) for c in samples] if len(samples) and hasattr(samples[0], "__len__") else [list(samples)]
    most = max((abs(float(x)) for c in channels for x in c), default=0) or 1
    frames = b"".join(struct.pack("<h", int(float(x) / most * 32767)) for frame in zip(*channels) for x in frame)
    n = len(channels)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(frames), b"WAVE", b"fmt ", 16, 1, n, int(rate), int(rate) * 2 * n, 2 * n, 16, b"data", len(frames))
    return head + frames


# Modules whose own way to show something needs a browser, or another program. What is imported is
# changed so that it displays.


def adopt_plotly(it, module):
    def bundle(self, *args, **kwargs):
        data = self.to_plotly_json()
        json = _load("json").loads(self.to_json())
        return {
            "application/vnd.plotly.v1+json": dict(json, config={}),
            "text/html": self.to_html(include_plotlyjs="cdn", full_html=False),
            "text/plain": "Figure({%d traces})" % len(data.get("data", ())),
        }

    def show(self, *args, **kwargs):
        it.display(self)

    module.BaseFigure._repr_mimebundle_ = bundle
    module.BaseFigure._repr_html_ = lambda self: None
    module.BaseFigure._ipython_display_ = None
    module.BaseFigure.show = show


def adopt_pil(it, module):
    module.Image.show = lambda self, *args, **kwargs: it.display(self)


def adopt_altair(it, module):
    def show(self, *args, **kwargs):
        it.display(self)

    module.TopLevelMixin.show = show


def adopt_bokeh(it, module):
    def show(obj, *args, **kwargs):
        from bokeh.embed import file_html
        from bokeh.resources import CDN

        it.display({"text/html": file_html(obj, CDN, "plot"), "text/plain": repr(obj)[:1000]}, raw=True)

    module.show = show


def adopt_display(it, module):
    """Makes the display functions of an installed IPython work here, without a kernel."""
    for name, f in displays(it).items():
        if name in vars(module):
            setattr(module, name, f)


def adopt_getipython(it, module):
    module.get_ipython = it.shell


MAX_SAVED = 1 << 20  # bytes of a saved figure that is shown unchanged


def adopt_figure(it, module):
    """Shows a figure that the code has saved, and not changed since, with the bytes of the file, so
    that both are recognized as one chart."""
    save = module.Figure.savefig

    @_load("functools").wraps(save)
    def savefig(self, fname, *args, **kwargs):
        result = save(self, fname, *args, **kwargs)
        try:
            if isinstance(fname, (str, _load("os").PathLike)):
                with open(fname, "rb") as f:
                    data = f.read(MAX_SAVED + 1)
                self._execbroker_saved = data if len(data) <= MAX_SAVED and data.startswith(b"\x89PNG\r\n\x1a\n") else b""
                self.stale = False
        except Exception:
            pass  # draw it again
        return result

    module.Figure.savefig = savefig


ADOPT = {
    "matplotlib.figure": adopt_figure,
    "plotly.basedatatypes": adopt_plotly,
    "PIL.Image": adopt_pil,
    "altair.vegalite.v4.api": adopt_altair,
    "altair.vegalite.v5.api": adopt_altair,
    "altair.vegalite.v6.api": adopt_altair,
    "bokeh.io.showing": adopt_bokeh,
    "IPython.core.display": adopt_display,
    "IPython.core.display_functions": adopt_display,
    "IPython.core.getipython": adopt_getipython,
}
