// Big integers and numbers do not mix.
1n + 1
