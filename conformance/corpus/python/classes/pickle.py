# Objects are written and read.
import copy
import pickle


class P:
    def __init__(self, x):
        self.x = x


q = pickle.loads(pickle.dumps({"p": [P(1), P(2)]}))
print([p.x for p in q["p"]], copy.deepcopy(q)["p"][1].x)
