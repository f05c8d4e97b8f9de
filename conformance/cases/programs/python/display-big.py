display("x" * {{count}})
print("end")
