# Assignment within an expression.
import io

f = io.StringIO("one\ntwo\n")
while line := f.readline():
    print(line.strip(), (n := len(line)))
n
