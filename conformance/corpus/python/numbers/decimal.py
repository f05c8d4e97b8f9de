# Decimals keep their places.
from decimal import Decimal, getcontext

getcontext().prec = 30
print(Decimal("1.10") + Decimal("2.20"), Decimal(1) / Decimal(7))
Decimal("0.1") * 3
