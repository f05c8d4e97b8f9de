// Lines that differ.

const most = 1000 // lines of each text

// diff returns the lines of two texts, each with "-" (only in the first), "+" (only in the second)
// or " ".
export function diff(a, b) {
  const x = a.split("\n").slice(0, most), y = b.split("\n").slice(0, most)
  // Lengths of the longest common subsequences of what follows.
  const common = Array.from({length: x.length + 1}, () => new Uint16Array(y.length + 1))
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) common[i][j] = x[i] === y[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1])
  }
  const lines = []
  let i = 0, j = 0
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      lines.push([" ", x[i++]])
      j++
    } else if (i < x.length && (j === y.length || common[i + 1][j] >= common[i][j + 1])) lines.push(["-", x[i++]])
    else lines.push(["+", y[j++]])
  }
  return lines
}
