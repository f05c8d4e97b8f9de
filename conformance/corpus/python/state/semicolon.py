# A semicolon at the end changes nothing in the value of a cell.
value = 6
value * 7
