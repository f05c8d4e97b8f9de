package e2b

// EnvdVersion is envdVersion, for the tests with E2B's own programs.
const EnvdVersion = envdVersion
