package all_test

import (
	"fmt"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

var pythonFamilies = []family{
	{executor.Python, "arithmetic", func(g *generator) {
		for range 4 + g.IntN(5) {
			g.attempt("print(" + g.pyNumber(3) + ")")
		}
	}},
	{executor.Python, "format", func(g *generator) {
		for range 6 {
			spec := pick(g, "", "*", "é") + pick(g, "<", ">", "^", "=", "") + pick(g, "", "+", " ") + pick(g, "", "#") + pick(g, "", "0") + pick(g, "", "12", "3") + pick(g, "", ",", "_") + pick(g, "", ".2", ".0") + pick(g, "", "d", "f", "e", "g", "x", "b", "%", "s", "n")
			g.attempt(fmt.Sprintf("print(format(%s, %q))", pick(g, g.integer(), g.float(), g.pyText()), spec))
		}
	}},
	{executor.Python, "text", func(g *generator) {
		g.line("s = %s", g.pyText())
		for range 6 {
			g.attempt("print(repr(s" + g.several(1, 3, "", func() string {
				return pick(g, ".upper()", ".title()", ".strip()", ".swapcase()", "[::-1]", ".casefold()", ".replace('a', 'é')", ".center(11, '*')", ".encode().decode('latin-1')", ".split('e')[0]", "[1:4]", ".zfill(9)", ".partition(' ')[2]", ".capitalize()", ".translate({97: 'A', 98: None})", ".expandtabs()", ".removesuffix('a')")
			}) + "))")
		}
		g.line("print(len(s), s.encode(), [hex(ord(c)) for c in s], s.isalnum(), ascii(s), sorted(set(s)))")
	}},
	{executor.Python, "collections", func(g *generator) {
		g.line("a = %s\nd = dict(enumerate(a))", g.pyList(0))
		for range 8 {
			g.attempt(pick(g, "a.append("+g.pyValue(1)+")", "print(a.pop("+fmt.Sprint(g.IntN(6)-2)+"))", "a.reverse()", "print(a.index("+g.pyValue(0)+"))", "a[1:3] = "+g.pyList(1), "print(sorted(a, key=repr)[:3])", "d.update({"+g.pyValue(0)+": 1})", "print(d.setdefault('k', []), d.get(1))", "print({repr(x) for x in a} & {'1', 'True'})", "del a["+fmt.Sprint(g.IntN(5))+"]", "print(max(a), min(a))", "print(sum(a))", "print(list(zip(a, d.items()))[:2])"))
		}
		g.line("print(a)\nprint(d)")
	}},
	{executor.Python, "flow", func(g *generator) {
		g.line("def f(n, depth=0):\n    log = []")
		g.pyBlock("    ", 3)
		g.line("    return log\n\n\nfor n in (0, 1, 5, -3):\n    print(n, f(n))")
	}},
	{executor.Python, "exceptions", func(g *generator) {
		g.line("import contextlib\n\n\nclass Own(%s):\n    pass\n\n\n@contextlib.contextmanager\ndef guard(name):\n    try:\n        yield name\n    except %s as e:\n        print('guard', name, type(e).__name__)\n    finally:\n        print('leave', name)\n", pick(g, "Exception", "ValueError", "LookupError"), pick(g, "KeyError", "ValueError", "ArithmeticError"))
		g.line("with guard('a'):")
		depth := "    "
		for range 1 + g.IntN(3) {
			g.line("%stry:", depth)
			depth += "    "
		}
		g.line("%s%s", depth, pick(g, "raise Own('own', 1)", "[][1]", "{}['k']", "1 / 0", "int('x')", "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])", "raise Own from KeyError('cause')", "assert False, 'said'", "raise KeyboardInterrupt", "print('nothing')", "undefined_name", "None.attribute"))
		for len(depth) > 4 {
			depth = depth[4:]
			clause := pick(g, "except KeyError as e:\n    print('key', e)", "except (ValueError, IndexError) as e:\n    print('value', e)\n    raise", "finally:\n    print('finally')", "except ZeroDivisionError as e:\n    raise RuntimeError('again') from e", "except Exception:\n    print('any')\nelse:\n    print('else')")
			g.line("%s%s", depth, strings.ReplaceAll(clause, "\n", "\n"+depth))
		}
		g.line("print('end')")
	}},
	{executor.Python, "classes", func(g *generator) {
		n := 3 + g.IntN(3)
		for i := range n {
			bases := []string{}
			for j := range i {
				if g.IntN(2) == 0 {
					bases = append(bases, fmt.Sprintf("C%d", j))
				}
			}
			g.line("try:\n    class C%d(%s):\n        x = %s\n        def f(self):\n            return [%d] + (super().f() if hasattr(super(), 'f') else [])\n        def __repr__(self):\n            return f'<%d {self.x!r}>'\nexcept TypeError as e:\n    print(e)\n    class C%d: pass", i, strings.Join(bases, ", "), g.pyValue(1), i, i, i)
		}
		g.line("for C in (%s,):\n    c = C()\n    print(c if hasattr(C, 'x') else '-', c.f() if hasattr(c, 'f') else None, [k.__name__ for k in C.__mro__])", g.several(n, n, ", ", func() string { return fmt.Sprintf("C%d", g.IntN(n)) }))
	}},
	{executor.Python, "iterators", func(g *generator) {
		g.line("import itertools as it\nimport functools, operator")
		src := pick(g, "range(9)", "[5, 1, 4, 2, 8]", "range(20, 3, -3)", "it.repeat(3, 4)")
		for range 2 + g.IntN(4) {
			src = fill(pick(g, "map(lambda x: x * 3 - 1, $1)", "filter(lambda x: x % 2, $1)", "it.islice($1, 1, None, 2)", "it.accumulate($1)", "(x for x in $1 if x > 2)", "reversed(list($1))", "it.chain($1, [7])", "sorted($1, key=lambda x: -x)", "it.takewhile(lambda x: x < 50, $1)", "it.dropwhile(lambda x: x < 3, $1)", "it.starmap(operator.mul, zip($1, it.count(2)))"), src)
		}
		g.line("print(list(%s))\nprint(functools.reduce(operator.xor, %s, 7), any(%s))", src, src, src)
	}},
	{executor.Python, "data", func(g *generator) {
		g.line("import json, csv, io, base64, struct, zlib, pickle, hashlib, pprint\nv = %s", g.pyList(0))
		g.line("t = json.dumps(v, sort_keys=True%s)\nprint(t, json.loads(t) == v)", pick(g, "", ", indent=2", ", ensure_ascii=False", ", separators=(',', ':')"))
		g.line("b = repr(v).encode()\nprint(base64.b64encode(b)[:40], zlib.crc32(b), hashlib.%s(b).hexdigest(), pickle.loads(pickle.dumps(v)) == v)", pick(g, "md5", "sha1", "sha256", "sha512", "blake2s"))
		g.line("pprint.pprint(v, width=%d)\nout = io.StringIO()\ncsv.writer(out).writerow([repr(x) for x in v])\nprint(repr(out.getvalue()))", 20+g.IntN(60))
		g.attempt(fmt.Sprintf("print(struct.pack(%q, %s).hex())", pick(g, "<i", ">H", "<d", "b", "q"), pick(g, g.integer(), g.float())))
	}},
	{executor.Python, "patterns", func(g *generator) {
		g.line("import re\ns = %s", g.pyText())
		for range 4 {
			p := g.several(1, 4, "", func() string {
				return pick(g, "a", "b*", "[a-e]+", `\w`, `\d+?`, ".", "(x|a)", "(?P<n"+fmt.Sprint(g.IntN(99))+">[a-c])", `\b`, "(?=b)", "^", "$", "[^a ]{1,2}", "(", ")", "*")
			})
			g.attempt(fmt.Sprintf("print(re.%s)", pick(g, "findall(r'"+p+"', s)", "sub(r'"+p+"', '<>', s)", "split(r'"+p+"', s)", "search(r'"+p+"', s, re.I)", "match(r'"+p+"', s).groups()")))
		}
	}},
	{executor.Python, "times", func(g *generator) {
		g.line("from datetime import *\na = datetime(%d, %d, %d, %d, %d, tzinfo=timezone.utc)\nd = timedelta(days=%d, seconds=%d)", 1970+g.IntN(100), 1+g.IntN(12), 1+g.IntN(28), g.IntN(24), g.IntN(60), g.IntN(4000)-2000, g.IntN(99999))
		g.line("print(a + d, (a - d).isoformat(), d / 7, a.isocalendar(), a.timetuple().tm_yday, d.total_seconds(), a.astimezone(timezone(timedelta(hours=%d))))", g.IntN(24)-12)
		g.attempt(fmt.Sprintf("print(a.strftime('%%%s %%%s'), datetime.strptime('%d-%02d', '%%Y-%%m'))", pick(g, "a", "B", "j", "U", "p", "y"), pick(g, "H", "d", "c", "x"), 2000+g.IntN(30), 1+g.IntN(14)))
	}},
	{executor.Python, "files", func(g *generator) {
		g.line("import os, pathlib, shutil\nnames = ['a.txt', 'd/b.txt', 'd/e/c é.bin', 'x.json']\nos.makedirs('d/e', exist_ok=True)")
		for range 10 {
			n, m := g.IntN(4), g.IntN(4)
			g.attempt(pick(g, fmt.Sprintf("with open(names[%d], 'w') as f:\n        f.write(%s)", n, g.pyText()), fmt.Sprintf("with open(names[%d], 'ab') as f:\n        f.write(bytes(range(%d)))", n, g.IntN(250)), fmt.Sprintf("print(open(names[%d]).read())", n), fmt.Sprintf("os.rename(names[%d], names[%d])", n, m), fmt.Sprintf("os.remove(names[%d])", n), fmt.Sprintf("print(os.path.getsize(names[%d]))", n), fmt.Sprintf("shutil.copy(names[%d], names[%d])", n, m), "os.rmdir('d/e')", fmt.Sprintf("pathlib.Path(names[%d]).touch()", n)))
		}
		g.line("print(sorted(str(p) for p in pathlib.Path('.').rglob('*') if not p.name.startswith('main.')))")
	}},
	{executor.Python, "input", func(g *generator) {
		g.WriteString(inputMark + g.several(0, 6, "\n", func() string { return pick(g, g.integer(), g.word(), g.float()) }) + pick(g, "", "\n") + "\x00")
		g.line("import sys")
		for range 2 + g.IntN(3) {
			g.attempt(pick(g, "print(repr(input('? ')))", "print(int(input()))", "print(sys.stdin.readline())", "print(float(input()) * 2)", "print(input().split())"))
		}
		g.line("print(repr(sys.stdin.read()))")
	}},
	{executor.Python, "output", func(g *generator) {
		g.line("import sys, logging")
		for range 8 {
			call := pick(g, "print($1, end=$2)", "sys.stdout.write($1 + $2)", "sys.stderr.write($1 + $2)", "print($1, $2, file=sys.stderr, flush=True)", "print($1, $2, sep='|')", "logging.warning($1 + ascii($2))")
			g.WriteString(fill(call, fmt.Sprintf("%s * %d", g.pyText(), 1+g.IntN(200)), pick(g, `""`, `"\n"`, `"\n\n"`, `"\t"`)) + "\n")
		}
		g.line("print('x' * %d)", g.IntN(200_000))
	}},
	{executor.Python, "cells", func(g *generator) {
		g.line("a = %s", g.pyList(1))
		for range 3 + g.IntN(3) {
			g.WriteString(cellMark)
			g.WriteString(pick(g, "a.append("+g.pyValue(1)+")\na", "b = a[:2]\nprint(b)", "del a\nprint('gone')", "a = "+g.pyList(1)+"\nlen(a)", "def f(x):\n    return [x] + a\nf(1)", "f(2)", "b", "import math\nmath.floor(2.5)", "_", "class A:\n    x = a\nA.x", "a[100]", "(", "a;", "for x in a:\n    print(x)") + "\n")
		}
	}},
	{executor.Python, "async", func(g *generator) {
		n := 2 + g.IntN(4)
		g.line("import asyncio\n\n\nasync def work(i, turns):\n    try:\n        for _ in range(turns):\n            await asyncio.sleep(0)\n        print('done', i)\n        if i == %d:\n            raise ValueError(i)\n        return i * i\n    except asyncio.CancelledError:\n        print('canceled', i)\n        raise\n\n\nasync def main():", g.IntN(2*n))
		g.line("    ts = [asyncio.create_task(work(i, 1 + 5 * %s)) for i in range(%d)]", pick(g, "i", "(9 - i)", "(i ^ 1)"), n)
		g.line("    %s", pick(g, "print(await asyncio.gather(*ts, return_exceptions=True))", "print([await t for t in ts])", "done, rest = await asyncio.wait(ts, return_when=asyncio.FIRST_COMPLETED)\n    print(len(done), len(rest))\n    [t.cancel() for t in rest]\n    print([type(r).__name__ for r in await asyncio.gather(*ts, return_exceptions=True)])", "for c in asyncio.as_completed(ts):\n        try:\n            print('got', await c)\n        except ValueError as e:\n            print('bad', e)"))
		g.line("\n\nasyncio.run(main())")
	}},
	{executor.Python, "threads", func(g *generator) {
		g.line("import threading, queue, concurrent.futures as cf\nq = queue.Queue()\n\n\ndef work(i):\n    q.put(i * %d)\n    return 10 // (i - %d)\n\n", 1+g.IntN(9), g.IntN(9))
		g.line("%s", pick(g, "ts = [threading.Thread(target=q.put, args=(i,)) for i in range(5)]\n[t.start() for t in ts]\n[t.join() for t in ts]", "with cf.ThreadPoolExecutor(3) as p:\n    print(list(p.map(work, range(5))))", "with cf.ThreadPoolExecutor(2) as p:\n    fs = [p.submit(work, i) for i in range(6)]\nprint([repr(f.exception() or f.result()) for f in fs])", "t = threading.Timer(0.01, q.put, ['late'])\nt.start()\nt.join()"))
		g.line("print(sorted(str(q.get()) for _ in range(q.qsize())))")
	}},
	{executor.Python, "programs", func(g *generator) {
		g.line("import subprocess, sys\nr = subprocess.run([%s], capture_output=True, text=True, input=%s)\nprint(r.returncode, repr(r.stdout), repr(r.stderr))", pick(g, "'cat'", "'sh', '-c', 'exit "+fmt.Sprint(g.IntN(300))+"'", "sys.executable, '-c', 'print(input()[::-1])'", "'sh', '-c', 'echo $0 >&2; cat', 'name'", "'no-such-program-"+fmt.Sprint(g.IntN(99))+"'"), g.pyText())
	}},
	{executor.Python, "exits", func(g *generator) {
		g.line("import sys\nprint('before')\ntry:\n    sys.exit(%s)\n%s\nprint('after')", pick(g, "", fmt.Sprint(g.IntN(600)-200), "'text "+fmt.Sprint(g.IntN(99))+"'", "None", "2.5", "[1]", "True"), pick(g, "finally:\n    print('finally')", "except Exception:\n    print('no exception')", "except SystemExit as e:\n    print('caught', e.code)\n    raise", "except BaseException as e:\n    print(repr(e))"))
	}},
	{executor.Python, "exact", func(g *generator) {
		g.line("from decimal import *\nfrom fractions import Fraction as F\nimport math, statistics\ngetcontext().prec = %d\nx, y = Decimal(%q), Decimal(%q)", 3+g.IntN(30), g.float(), g.float())
		for range 4 {
			g.attempt("print(" + pick(g, "x / y", "x ** 3", "x.sqrt()", "x.quantize(Decimal('0.01'))", "F(x).limit_denominator(50)", "x % y", "math.log10(x)", "x.as_tuple()", "F(x) + F(y)", "statistics.mean([x, y])", "format(x, '.3e')", "round(x, 1), round(float(x), 1)", "math.isqrt(int(abs(x)))", "math.fsum([float(x)] * 10), math.hypot(x, y)") + ")")
		}
	}},
}

// attempt writes a statement whose exceptions are printed.
func (g *generator) attempt(statement string) {
	g.WriteString("try:\n    " + statement + "\nexcept Exception as e:\n    print(type(e).__name__, e)\n")
}

// pyText returns a string literal.
func (g *generator) pyText() string { return "'" + g.word() + "'" }

// pyNumber returns an expression of numbers.
func (g *generator) pyNumber(depth int) string {
	if depth == 0 || g.IntN(5) == 0 {
		return pick(g, g.integer(), g.float(), "True", "1j")
	}
	return fill(pick(g, "($1 + $2)", "($1 - $2)", "($1 * $2)", "($1 / $2)", "($1 // $2)", "($1 % $2)", "($1 & $2)", "($1 << 3)", "-$1", "~$1", "abs($1)", "round($1, 1)", "($1 < $2)",
		"int($1)", "divmod($1, $2)", "float($1)", "max($1, $2)", "($1 if $2 else 0)", "str($1)", "int.bit_length($1)"), g.pyNumber(depth-1), g.pyNumber(depth-1))
}

// pyValue returns a literal of any type.
func (g *generator) pyValue(depth int) string {
	if depth > 0 && g.IntN(3) == 0 {
		return pick(g, g.pyList(depth-1), "("+g.pyValue(depth-1)+",)", "{"+g.pyText()+": "+g.pyValue(depth-1)+"}")
	}
	return pick(g, g.integer(), g.float(), g.pyText(), "True", "None")
}

// pyList returns a list literal.
func (g *generator) pyList(depth int) string {
	return "[" + g.several(1, 6, ", ", func() string { return g.pyValue(depth) }) + "]"
}

// pyBlock writes the statements of a function with the parameters n and depth that logs what it
// does.
func (g *generator) pyBlock(indent string, depth int) {
	for range 1 + g.IntN(3) {
		open := ""
		if depth > 0 {
			open = pick(g, "", "if n > $1:", "for i in range($1):", "while len(log) < $1:", "try:", "for x in [n, $1, 'x']:", "match n:")
		}
		open = fill(open, fmt.Sprint(g.IntN(6)))
		switch {
		case open == "":
			g.WriteString(indent + fill(pick(g, "log.append(n * $1)", "log.append(depth)", "log += [len(log)] * 2", "n -= $1", "log.append(10 // n)", "log.append('x' * n)", "n += 1"), fmt.Sprint(1+g.IntN(5))) + "\n")
			continue
		case open == "match n:":
			g.line("%smatch n:\n%s    case 0 | 1:\n%s        log.append('small')\n%s    case int() if n < 0:\n%s        log.append('less')\n%s    case _:", indent, indent, indent, indent, indent, indent)
			g.pyBlock(indent+"        ", depth-1)
			continue
		}
		g.line("%s%s", indent, open)
		g.pyBlock(indent+"    ", depth-1)
		g.line("%s    log.append(%d)", indent, g.IntN(100))
		switch {
		case open == "try:":
			g.line("%sexcept (ZeroDivisionError, TypeError) as e:\n%s    log.append(str(e))", indent, indent)
		case strings.HasPrefix(open, "for"):
			g.line("%s    if len(log) > 40:\n%s        %s", indent, indent, pick(g, "break", "return log", "continue"))
		case strings.HasPrefix(open, "if"):
			g.line("%selse:\n%s    log.append('else')", indent, indent)
		}
	}
}
