print("""%time
!echo""")
print(5 %3)
