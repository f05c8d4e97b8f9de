// Lines that differ.

const most = 1000 // lines of each text

// diff returns the lines of two texts, each with "-" (only in the first), "+" (only in the second)
// or " ".
export function diff(a, b) {
  const texts = [a, b].map(t => t.split("\n").slice(0, most))
  // Numbers of lines are compared, because long lines that begin alike take long.
  const numbers = new Map(), number = line => numbers.get(line) ?? numbers.set(line, numbers.size).size - 1
  const [x, y] = texts.map(lines => lines.map(number))
  // Lengths of the longest common subsequences of what follows.
  const common = Array.from({length: x.length + 1}, () => new Uint16Array(y.length + 1))
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) common[i][j] = x[i] === y[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1])
  }
  const lines = []
  let i = 0, j = 0
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      lines.push([" ", texts[0][i++]])
      j++
    } else if (i < x.length && (j === y.length || common[i + 1][j] >= common[i][j + 1])) lines.push(["-", texts[0][i++]])
    else lines.push(["+", texts[1][j++]])
  }
  return lines
}
