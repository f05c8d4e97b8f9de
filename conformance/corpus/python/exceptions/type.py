# Types that do not add.
"1" + 1
