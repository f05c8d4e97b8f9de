// A mistake in a pattern.
new RegExp("a(b")
