// Grouping by hand.
const words = ["one", "two", "three"];
words.reduce((g, w) => ({ ...g, [w.length]: [...(g[w.length] ?? []), w] }), {})
