// Counting words.
const counts = {};
for (const w of "the cat and the hat".split(" ")) counts[w] = (counts[w] || 0) + 1;
counts
