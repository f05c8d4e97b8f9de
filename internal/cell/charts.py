# Charts as data: what a figure of matplotlib shows, in the form in which E2B's kernel describes it.
# It follows displays.py in one program.

CHART = "e2b/chart"
MAX_POINTS = 10000  # points, bars, slices and outliers of a figure; with more there is only the image
MAX_AXES = 50
MAX_LABEL = 1000  # characters


def chart(figure):
    """Returns the chart as JSON, or None if nothing or too much is drawn."""
    return Charts().text(figure)


class _TooMuch(Exception):
    pass


class Charts:
    """The charts of one figure."""

    def __init__(self):
        self.left = MAX_POINTS

    def text(self, figure):
        axes = [ax for ax in figure.get_axes() if ax.get_visible() and ax.get_label() != "<colorbar>"]
        if len(axes) > MAX_AXES:
            return None
        try:
            charts = [self.of_axes(ax) for ax in axes]
        except _TooMuch:
            return None
        if not charts:
            return None
        if len(charts) > 1:
            title = getattr(figure, "_suptitle", None)
            charts = [{"type": "superchart", "title": _label(title.get_text() if title else ""), "elements": charts}]
        data = _load("json").dumps(charts[0], allow_nan=False)
        return data.encode() if len(data) <= MAX_JSON else None

    def take(self, values):
        """Counts the elements of the chart."""
        values = list(values)
        self.left -= len(values)
        if self.left < 0:
            raise _TooMuch
        return values

    def of_axes(self, ax):
        c = {"type": "unknown", "title": _label(ax.get_title()), "elements": []}
        x, y = Axis(ax.xaxis), Axis(ax.yaxis)
        boxes = self.boxes(ax)
        slices = self.slices(ax)
        bars = self.bars(ax, x, y)
        if boxes:
            c["type"], c["elements"] = "box_and_whisker", boxes
        elif slices:
            c["type"], c["elements"] = "pie", slices
            return c  # its axes have no meaning
        elif bars:
            c["type"], c["elements"] = "bar", bars
        else:
            lines, clouds = self.lines(ax, x, y), self.clouds(ax, x, y)
            if lines or clouds:
                c["type"], c["elements"] = "line" if lines else "scatter", lines + clouds
                x.describe("x", c)
                y.describe("y", c)
        x.name("x", c)
        y.name("y", c)
        return c

    def boxes(self, ax):
        there = {id(artist) for artist in ax.get_children()}
        return [
            {
                "label": _label(s.get("label", n)), "min": _number(s["whislo"]), "first_quartile": _number(s["q1"]), "median": _number(s["med"]),
                "third_quartile": _number(s["q3"]), "max": _number(s["whishi"]), "outliers": [_number(v) for v in self.take(s.get("fliers", ()))],
            }
            for n, (s, artist) in enumerate(self.take(getattr(ax, "_execbroker_boxes", ())), 1)
            if id(artist) in there  # unless the axes were cleared
        ]

    def slices(self, ax):
        wedges = self.take(p for p in ax.patches if type(p).__name__ == "Wedge")
        return [{"label": _label(w.get_label()), "angle": _number(w.theta2 - w.theta1), "radius": _number(w.r)} for w in wedges]

    def bars(self, ax, x, y):
        bars = []
        for container in ax.containers:
            if type(container).__name__ != "BarContainer":
                continue
            lying = getattr(container, "orientation", None) == "horizontal"
            for b in self.take(container.patches):
                if lying:
                    label, value = y.place(b.get_y() + b.get_height() / 2), b.get_width()
                else:
                    label, value = x.place(b.get_x() + b.get_width() / 2), b.get_height()
                bars.append({"label": label, "group": _label(container.get_label()), "value": _number(value)})
        return bars

    def lines(self, ax, x, y):
        # A line along an axis, such as axhline, has no points.
        own = [line for line in ax.lines if line.get_transform() is ax.transData]
        return [{"label": _label(line.get_label()), "points": self.points(zip(*line.get_data(orig=False)), x, y)} for line in own]

    def clouds(self, ax, x, y):
        own = [c for c in ax.collections if type(c).__name__ == "PathCollection"]
        return [{"label": _label(c.get_label()), "points": self.points(c.get_offsets().tolist(), x, y)} for c in own]

    def points(self, pairs, x, y):
        return [[x.value(a), y.value(b)] for a, b in self.take(pairs)]


class Axis:
    """An axis, and the meaning of its numbers."""

    def __init__(self, axis):
        self.axis, self.names, self.date, self.scale = axis, {}, None, axis.get_scale()
        get = getattr(axis, "get_converter", None)
        kind = type(get() if get else axis.converter)
        if kind.__module__ == "matplotlib.dates" or kind.__name__ == "DatetimeConverter":
            self.scale, self.date = "datetime", _load("sys").modules["matplotlib.dates"].num2date
        elif kind.__name__ == "StrCategoryConverter":
            self.scale = "categorical"
            self.names = {n: _label(name) for name, n in getattr(axis.units, "_mapping", {}).items()}

    def value(self, v):
        """Returns the meaning of a coordinate: a number, a time or a category, or None for a gap.
        """
        v = _number(v)
        if v is None:
            return None
        if self.date:
            return self.date(v).isoformat()
        return self.names.get(v, v)

    def place(self, v):
        """Returns the label at v: the category, the nearest label that the code has set, or the
        coordinate."""
        at = _number(v)
        if at is not None and not self.date and type(self.axis.get_major_locator()).__name__ in ("FixedLocator", "StrCategoryLocator"):
            ticks = [(abs(float(t) - at), text) for t, text in zip(self.axis.get_ticklocs(), self.labels()) if text]
            if ticks:
                return min(ticks)[1]
        meant = self.value(v)
        return "" if meant is None else "%g" % meant if type(meant) is float else str(meant)

    def labels(self):
        return [_label(t.get_text()) for t in self.axis.get_ticklabels()]

    def name(self, letter, chart):
        label = _label(self.axis.get_label_text())
        unit = _load("re").search(r"[(\[]([^()\[\]]+)[)\]]\s*$", label)
        chart[letter + "_label"], chart[letter + "_unit"] = label or None, unit[1] if unit else None

    def describe(self, letter, chart):
        chart[letter + "_ticks"] = [self.value(v) for v in self.axis.get_ticklocs()]
        chart[letter + "_tick_labels"] = self.labels()
        chart[letter + "_scale"] = self.scale


def _label(text):
    """Returns a label as text, or nothing for labels that matplotlib generates."""
    text = str(text)
    return "" if text.startswith("_") else _cut(text, MAX_LABEL)


def _number(v):
    v = float(v)
    return v if v - v == 0 else None  # neither infinite nor not a number


def adopt_axes(it, module):
    """Makes axes record the data of their box plots, which cannot be read from the lines."""
    draw = module.Axes.bxp

    @_load("functools").wraps(draw)
    def bxp(self, bxpstats, *args, **kwargs):
        bxpstats = list(bxpstats)
        drawn = draw(self, bxpstats, *args, **kwargs)
        try:
            self._execbroker_boxes = list(getattr(self, "_execbroker_boxes", ())) + list(zip(bxpstats, drawn["medians"]))
        except Exception:
            pass  # the chart is described without them
        return drawn

    module.Axes.bxp = bxp


ADOPT["matplotlib.axes._axes"] = adopt_axes
