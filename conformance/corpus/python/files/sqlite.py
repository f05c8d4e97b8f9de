# A database in memory.
import sqlite3

db = sqlite3.connect(":memory:")
db.execute("create table t (name text, n integer)")
db.executemany("insert into t values (?, ?)", [("a", 1), ("b", 2), ("a", 3)])
print(db.execute("select name, sum(n) from t group by name order by name").fetchall())
