package main

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Tests are in one of two tiers. Those of make test are all but those of the rules below, which are
// in make exhaustive. A tier is chosen by selection: make test passes the rules of a package to go
// test -skip, and make exhaustive passes the same to -run.

// A rule selects tests of a package.
type rule struct {
	dir string // of the package, from the root of the repository
	// tests is a pattern of names, element by element as for go test -run. Each element has to
	// match as a whole. No element matches what is below it: all of it is selected.
	tests   string
	minutes float64 // that they take, for shares of equal size
	why     string
}

// stable are the areas of the suite that no transport can break: what the code of a run finds in
// its interpreter. Docker runs them over the same runner in the same containers.
const stable = "await|cell-names|cells|code|dir|exceptions|hostile|isolation|language|mixed|subprocess|surroundings|threads|values|workdir"

// supervised are the areas of the suite whose work the runner does inside of the sandbox. What is
// left for a backend over it are those that can fail by transport: output, input, files, times and
// ends.
const supervised = "aliases|artifacts|contexts|env|errors|events|exit|interrupt|linger|packages|parallel|runs|state"

// transported are the other areas of the suite in a language: those that a transport can break.
const transported = "attach|cancel|checkpoint|close|create|files|lifecycle|limits|network|output|ports|refresh|stdin|streaming|timeouts|ttl"

// unspoken are the areas of the suite that are in no language.
const unspoken = "aliases|attach|close|commands|create|declares|fencing|info|keep-alive|leaks|list|mixed|network|ports|pty"

// inside are cases of the areas that can fail by transport whose work the runner does inside of the
// sandbox nevertheless: the others of their areas bring as much over the transport, or more.
var inside = []string{
	"cancel/(before|code-stops|deadline|swallow)",
	"files/(bad-names|bytes|code-then-read|fs|host|list|mkdir|modes|not-there|odd-names|reader|remove|rename|replace|symlinks|write-then-code|wrong-kinds)",
	"output/(binary|both|half-character|keep|late|limit-scope|long-line|many-lines|none|split-character|stderr|unterminated)",
	"stdin/(line|nil|not-kept|timeout|unread)",
	"timeouts/(ceiling|clock|loop|native|no-limit|not-early|output-kept|regex|sleep|swallow)",
}

// mechanics are the areas of the suite whose work is the supervisor's, whatever the language.
const mechanics = "artifacts|attach|close|contexts|create|dir|env|errors|files|hostile|isolation|lifecycle|limits|network|parallel|refresh|runs|subprocess|timeouts|ttl|workdir"

// exhaustive are the tests that only make exhaustive runs.
var exhaustive = append([]rule{
	{"e2b", "TestConformance/javascript", 5, "JavaScript takes the same way as Python, and Docker runs what is its own"},
	{"e2b", "TestConformance/python/(" + stable + "|" + supervised + ")", 4, "Docker runs them over the same runner"},
	{"e2b", "TestConformance/(aliases|commands)", 0.3, "Docker runs them over the same runner"},
	{"e2b", "TestConformance/ports/(addresses|hostile|idle|many)", 1, "Docker runs them over the same runner"},
	{"e2b", "TestConformanceOfCodeInterpreter", 5, "the suite over the second kernel; unit tests translate what its service says"},
	{"flymachines", "TestConformance/javascript", 4, "JavaScript takes the same way as Python, and Docker runs what is its own"},
	{"flymachines", "TestConformance/python/(" + stable + "|" + supervised + ")", 4, "Docker runs them over the same runner"},
	{"flymachines", "TestConformance/(aliases|commands|pty)", 0.3, "Docker runs them over the same runner"},
	{"flymachines", "TestConformance/ports/(addresses|hostile|idle|many)", 1, "Docker runs them over the same runner"},
	{"modal", "TestConformance/javascript", 4, "JavaScript takes the same way as Python, and Docker runs what is its own"},
	{"modal", "TestConformance/python/(" + stable + "|" + supervised + ")", 4, "Docker runs them over the same runner"},
	{"modal", "TestConformance/(aliases|commands|pty)", 0.3, "Docker runs them over the same runner"},
	{"modal", "TestConformance/ports/(addresses|hostile|idle|many)", 1, "Docker runs them over the same runner"},
	{"modal", "Test(Cycles|Killed|Packages)", 2, "make test counts what the suite leaves, and installs on Docker by the same code"},
	{"modal", "TestRecovers", 1.5, "make test connects again, cuts streams behind each message, refuses, preempts and schedules late"},
	{"modal", "Test(Endless|StoppedApp|UnansweredCreate)", 0.2, "make test refuses what a provider says and recovers from it; these are the rarest cases"},
	{"modal", "TestAttempts", 0.3, "Docker makes the same attempts"},
	{"bubblewrap", "TestConformance/javascript", 2, "JavaScript takes the same way as Python, and Docker runs what is its own"},
	{"bubblewrap", "TestConformance/python/(" + stable + "|" + supervised + ")", 1.5, "Docker runs them over the same runner"},
	{"kubernetes", "TestConformanceEmulated/javascript", 4, "JavaScript takes the same way as Python, and Docker runs what is its own"},
	{"kubernetes", "TestConformanceEmulated/python/(" + stable + "|" + supervised + ")", 4, "Docker runs them over the same runner"},
	{"kubernetes", "TestConformanceEmulated/(aliases|commands|pty)", 0.3, "Docker runs them over the same runner"},
	{"kubernetes", "TestConformanceEmulated/ports/(addresses|hostile|idle|many)", 1, "Docker runs them over the same runner"},
	{"kubernetes", "TestConformance/javascript", 11, "a cluster of real programs, which take long to build; make test runs the same runner over Docker"},
	{"kubernetes", "TestConformance/python/(" + stable + "|" + supervised + ")", 8, "likewise"},
	{"kubernetes", "TestConformance/python/(" + transported + ")", 6, "likewise"},
	{"kubernetes", "TestConformance/(" + unspoken + ")", 5, "likewise"},
	{"kubernetes", "TestCluster", 11, "likewise: attacks, rights, policies and what one pod takes of the node's kernel"},
	{"kubernetes", "TestClusterFaults", 12, "likewise: faults, and what is left at the node"},
	{"kubernetes", "TestPackages", 0.8, "Docker installs by the same code; TestBuilder says what fetches"},
	{"backends/all", "TestKubernetes", 12, "it brings up a cluster; make test compares and moves between the other backends"},
	{"examples/switch", "TestKubernetes", 1.5, "it brings up a cluster"},
	{"kubernetes/kubetest", "TestCluster", 2, "it brings up a cluster; make test has no use for one"},
	{"deploy/helm", "Test(Chart|Guide|Refused|Text)", 6, "they build Helm from its source; make test has no other use for it"},
	{"deploy/helm", "TestInstall", 8, "it brings up a cluster, and installs the chart there with what the others build"},
	{"docker", "TestConformance/javascript/(" + mechanics + ")", 4, "make test runs them in Python; the supervisor is the same"},
	{"docker", "TestConformance/javascript/aliases", 0.5, "likewise"},
	{"docker", "TestConformance/javascript/output/(bulk|limit-scope|many-lines|slow-reader)", 0.7, "likewise: they move much"},
	{"docker", "TestConformance/javascript/packages/(during-run|spec)", 0.7, "likewise; make test installs with npm in packages/install"},
	{"pyodide", "TestConformance/javascript/(" + mechanics + ")", 2, "make test runs them in Python; the host program is the same"},
	{"backends/all", "TestParity", 15, "make test compares every two-hundredth program"},
	{"backends/all", "TestParityOfModal", 15, "make test compares the backends that have other transports"},
	{"backends/all", "TestParityOfGenerated", 6, "make test compares every two-hundredth program of the corpus"},
	{"pyodide", "TestKilledWhilePreparing", 3.5, "it prepares the runtime nine times; make test kills it once, in TestKilledWhileInstalling"},
	{"pyodide", "Test(DamageIsRepaired|FallBack|TwoProgramsPrepareAtOnce)", 3, "they prepare the runtime many times"},
	{"runner", "TestScripts", 3, "make test runs the cases of the suite about scripts; these compare 133 programs with plain Node"},
	{"docker", "TestOutlive", 1.5, "runner makes the same attempts over the runner alone, with more ends of a run"},
	{"docker", "Test(Endure|InstallAttached|TemplateRegistry)", 2, "make test proves the parts that they put together"},
	{"examples/stateless", "TestConformance/python/(" + stable + "|" + supervised + "|cancel|files|timeouts|ttl)", 2, "the backends of this repository run them"},
	{"examples/thirdparty", "TestConformance/javascript", 3, "JavaScript takes the same way as Python, and Docker runs what is its own"},
	{"examples/thirdparty", "TestConformance/python/(" + stable + "|" + supervised + "|cancel|timeouts|ttl)", 3, "Docker runs them over the same runner"},
	{"examples/thirdparty", "TestConformance/(commands|pty|keep-alive)", 0.3, "Docker runs them over the same runner"},
	{"runner/sshtest", "TestConformance/javascript", 3, "JavaScript takes the same way as Python, and Docker runs what is its own"},
	{"runner/sshtest", "TestConformance/python/(" + stable + "|" + supervised + "|cancel|timeouts|ttl)", 3, "Docker runs them over the same runner"},
	{"runner/sshtest", "TestConformance/(commands|pty|keep-alive)", 0.3, "Docker runs them over the same runner"},
	{"docker", "TestConformanceOf(GVisor|Crun)", 6, "the suite over other runtimes than the engine's own"},
	{"docker", "TestAttemptsOfGVisor", 0.6, "make test makes these attempts over the engine's own runtime"},
	{"docker", "TestPodman", 0.3, "Podman is refused before it is asked for a sandbox, and nothing else needs it"},
	{"docker", "TestOldImages", 0.3, "other tests of make test need no image of an older Debian"},
	{"flymachines", "Test(Cycles|Killed)", 2, "make test counts what the suite leaves; these make a hundred Machines, and wait for those of a program that was killed"},
	{"e2b", "TestAttempts", 0.3, "Docker makes the same attempts, of which its containers are also the stand-in's"},
	{"flymachines", "TestAttempts", 0.3, "Docker makes the same attempts"},
	{"pyodide", "TestFaults", 7, "the backend in memory is tested with every fault, and process-leaked starts a real process there"},
	{"pyodide", "Test(Floods|ScriptMemory|FilesSurviveTheProcess|InterruptAtRandomMoments|HashSeed)", 3, "make test proves one of each: the limits of memory, files after a lost process, interrupts"},
	{"conformance/conformancetest", "TestFaultsInAllCases", 2, "make test looks for the same faults in the cases that take little time"},
	{"runner", "Test.*/(bookworm|bullseye|trixie)", 5, "make test runs them with this machine's Python and Node; the suite runs in an image of trixie"},
	{"runner", "TestSuspendHostile", 1, "each is a storm of processes, which starves the tests beside it; make test suspends what a shell has started"},
	{"docker", "Test(Wheels|Index)", 2, "make test installs from an index in TestRegistry and in the suite"},
	{"docker", "TestBounds", 0.9, "it takes what the tests beside it may miss; make test takes other things in TestOthersAreMade"},
	{"bubblewrap", "TestBounds", 0.4, "likewise"},
	{"docker", "Test(HostileWheels|BuilderIsTakenOver)", 2, "make test has TestHostileArchives, TestHostileContent and TestSourceDistribution, and these attempts in sessions"},
	{"docker", "Test(Floods|Verdicts)", 1, "runner makes the same floods over the runner alone"},
	{"docs/guides", "TestGuides/(chat|conformance|dify|e2b-sdks|fronts|javascript-client|judge0|jupyter|librechat|nemo|onyx|page|parity|piston|terrarium)", 1.5, "make test runs the same programs in their own tests"},
	{"docs/guides", "TestIncidents", 6, "make test runs what the pages rest on in the packages' own tests; these make incidents happen, and wait for leases, breakers and outages"},
	{".", "TestReadmeInFreshClone", 2, "it builds and prepares everything again; make test runs the same programs in the documents' own tests"},
	{".", "TestInstallFromProxy", 5, "it builds every module again, as somebody who has none; make test says what each package links"},
	{".", "TestReadmeOnBareDebian", 6, "likewise, in a container"},
	{"pyodide", "TestAttemptsWork", 1.5, "it shows that attempts get out of hosts that lack a layer; make test makes them where all layers are"},
	{"pyodide", "Test(ForgedFrames|HostileHost|Nonsense)", 2, "make test reads such frames in TestFrames and in the corpus of FuzzFrames"},
	{"pyodide", "TestEscape/javascript/bubblewrap/(chain-of-promises|finalizers|memory-of-the-engine)", 2, "each fills the memory of an engine; make test does that from Python"},
	{"e2b", "TestCodeInterpreterSwitches", 0.5, "TestSwitches throws the same switches over the kernel that is the default"},
	{"e2b", "TestJupyter", 2, "what only a kernel of Jupyter does, in an image of its own"},
	{"e2b", "TestConformanceOfJavaScript", 3, "make test runs TestConformanceOfCodeInterpreter; this runs it over the traits of E2B's kernel of JavaScript"},
	{"e2b", "TestConformanceOfJupyter", 12, "make test runs TestConformanceOfCodeInterpreter; this runs what the kernel decides over Jupyter's own"},
	{"server/e2b", "TestCLI", 1, "E2B's command line calls what its SDK does, in TestSDKs"},
	{"e2b", "TestKernels", 1.5, "make test runs the kernel that is the default; unit tests translate what the service of this one says"},
	{"server/e2b/e2btest", "TestHundredSandboxes", 1, "internal/ci/load has a hundred users, and docker as many sessions"},
	{"backends/all", "TestRolloutDrill", 4, "backends decides over two replicas and backends in memory"},
	{"backends/all", "TestShadowDrill", 4, "backends compares over two replicas and backends in memory"},
	{"backends/all", "TestCarried", 5, "make test moves three of these conversations"},
	{"backends/all", "TestConversationsMove", 1.5, "make test moves eight of these conversations, drawn"},
	{"backends/all", "TestMoveDrill", 4, "backends moves conversations between backends in memory; executor/checkpoint between these two"},
	{"backends/all", "TestMigration", 2, "examples/switch and examples/abtest move between the same backends"},
	{"internal/ci/site", "TestSite", 5, "it builds the whole site twice; TestNavigation and TestText check what it is built from"},
	{"cmd/execbroker", "TestFirstHourOf(Networks|NPM)", 1.2, "TestFirstHour breaks machines in the ways that take npm no time"},
	{"cmd/execbroker", "TestInspector", 1, "tool/mcp speaks the protocol with the SDK's own client"},
	{"cmd/execbroker", "TestNeMoToolkit", 0.3, "server/nemo answers the same requests over the backend in memory"},
	{"pyodide", "TestEscape/(python|javascript)/(none|namespaces)", 3, "make test attacks the default layer, bubblewrap"},
	{"executor/checkpoint", "TestPyodideToDocker", 0.3, "TestValues carries the same over the Python of the machine"},
	{"executor/rollout", "TestTenThousand", 3, "TestSimulation makes some hundreds"},
	{"cmd/execbroker", "TestDrillForMinutes", 10.5, "TestDrill does the same for some seconds"},
	{"cmd/execbroker", "TestDrillForMinutesOverRedis", 10.5, "TestDrill does the same for some seconds"},
	{"cmd/execbroker", "TestUpgrade", 3, "it builds an earlier version; executor/sessions reads and writes records of other versions in TestOtherVersionsOfARecord"},
	{"backends", "TestBrokerIsAnExecutorForJavaScript", 0.3, "what the broker adds does not depend on the language; make test runs the suite in Python"},
	{"backends", "TestThousandConversations", 0.5, "internal/ci/load has a hundred users over real sandboxes"},
	{"server/page", "TestNestingsInFirefox", 1, "TestNestings shows the same documents in Chromium, and the sanitiser does not depend on the browser"},
	{"internal/ci", "TestOutdated", 0.3, "npm takes seconds for each question"},
	{"internal/ci", "TestVulnerabilities", 0.5, "it builds govulncheck, which only make exhaustive runs"},
	{"internal/ci/release", "TestRelease", 10, "it builds six programs and two tools, and starts systemd; make test tests the parts"},
	{"pyodide", "TestScript(Errors|LikeNode|State)", 0.5, "make test runs the cases of the suite about the same; these compare more programs with plain Node"},
}, insideOf("e2b/TestConformance", "flymachines/TestConformance", "kubernetes/TestConformanceEmulated", "modal/TestConformance")...)

// insideOf are the rules for the cases of inside, in tests that run the suite.
func insideOf(suites ...string) (rules []rule) {
	for _, suite := range suites {
		dir, test, _ := strings.Cut(suite, "/")
		for _, tests := range inside {
			rules = append(rules, rule{dir, test + "/python/" + tests, 0.3, "Docker runs them over the same runner"})
		}
	}
	return rules
}

// always are added to the tests of a rule: they count what the others have left. Those that no rule
// selects run in both tiers.
var always = []rule{
	{dir: "kubernetes", tests: "TestConformance/leaks"},
	{dir: "bubblewrap", tests: "TestConformance/leaks"},
	{dir: "docker", tests: "TestConformance/leaks"},
	{dir: "e2b", tests: "TestConformance/leaks"},
	{dir: "examples/stateless", tests: "TestConformance/leaks"},
	{dir: "examples/thirdparty", tests: "TestConformance/leaks"},
	{dir: "flymachines", tests: "TestConformance/leaks"},
	{dir: "kubernetes", tests: "TestConformanceEmulated/leaks"},
	{dir: "modal", tests: "TestConformance/leaks"},
	{dir: "pyodide", tests: "TestConformance/leaks"},
	{dir: "runner/sshtest", tests: "TestConformance/leaks"},
}

// plain are the tests of make test that run without the race detector, which has nothing to find in
// them and makes them take five times as long.
var plain = []rule{
	{dir: "conformance/conformancetest", tests: "Test(Faults|OverAProcessBoundary)", why: "each is the suite over the backend in memory, many times or in a program for each session, and TestConformance runs it with the detector"},
	{dir: "executor/rollout", tests: "Test(Simulation|Ranks)", why: "millions of calls of functions that share nothing"},
}

// alone is the pattern of the tests that measure clocks or memory. They run when nothing else does.
const alone = "^TestAlone"

// divided are tests that rules select in parts, and all of them together as a whole. make test does
// not even begin them: that alone brings up a cluster.
var divided = []rule{{dir: "kubernetes", tests: "TestConformance"}}

// expression returns the pattern for go test.
func (r rule) expression() string {
	elements := strings.Split(r.tests, "/")
	for i, e := range elements {
		elements[i] = "^(" + e + ")$"
	}
	return strings.Join(elements, "/")
}

// selects reports whether r selects a test or subtest of its package.
func (r rule) selects(test string) bool {
	name, elements := strings.Split(test, "/"), strings.Split(r.tests, "/")
	if len(name) < len(elements) {
		return false
	}
	for i, e := range elements {
		if !whole(e).MatchString(name[i]) {
			return false
		}
	}
	return true
}

// whole returns the expression that matches e and nothing around it. There are some hundred of
// them, and they are asked about thousands of names.
func whole(e string) *regexp.Regexp {
	if re, ok := wholes.Load(e); ok {
		return re.(*regexp.Regexp)
	}
	re := regexp.MustCompile("^(" + e + ")$")
	wholes.Store(e, re)
	return re
}

var wholes sync.Map // of *regexp.Regexp, by expression

// skipped returns the pattern for go test -skip of what make test leaves out in a package, or "".
func skipped(dir string) string {
	return together(slices.DeleteFunc(slices.Concat(exhaustive, divided), func(r rule) bool { return r.dir != dir }))
}

// together returns one pattern for what any of rules selects. Those of whole tests come first: go
// test asks no other rule about a test as soon as one selects a part of it.
func together(rules []rule) string {
	var all []string
	for _, r := range rules {
		all = append(all, r.expression())
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	return strings.Join(all, "|")
}

// selected returns the pattern for go test -run of the tests of a rule.
func selected(r rule) string {
	all := []string{r.expression()}
	for _, a := range always {
		if test, _, _ := strings.Cut(a.tests, "/"); a.dir == r.dir && strings.HasPrefix(r.tests, test+"/") {
			all = append(all, a.expression())
		}
	}
	return strings.Join(all, "|")
}

// budgets are the minutes that a package may take in make test on two processors, by directory.
// What is not listed has the last entry's. Two lanes run at a time, so the sum is at most what two
// of them have in 20 minutes: a package that needs more gets it from others.
var budgets = []struct {
	dir     string
	minutes float64
}{
	{"pyodide", 5.0},
	{"docker", 3.4},
	{"e2b", 2.3},
	{"flymachines", 2.3},
	{"modal", 1.0},
	{"kubernetes", 1.1},
	{"bubblewrap", 1.3},
	{"backends/all", 1.5},
	{"conformance/conformancetest", 1.9},
	{"cmd/execbroker", 1.75},
	{"runner", 1.5},
	{"docs/guides", 0.8},
	{"examples/stateless", 0.4},
	{"examples/thirdparty", 0.4},
	{"runner/sshtest", 0.55},
	{"flymachines/flytest", 0.5},
	{"modal/modaltest", 0.2},
	{"server/e2b", 0.5},
	{"server", 0.1},
	{"server/nemo", 0.2},
	{"server/page", 0.6},
	{"server/compat", 0.25},
	{"server/jupyter", 0.3},
	{"internal/ci/load", 0.1},
	{"clients/npm", 0.2},
	{"internal/ci", 0.5},
	{"tool", 0.3},
	{"examples/chatbackend", 0.35},
	{"internal/engine", 0.1},
	{"backends", 0.5},
	{"executor/rollout", 0.2},
	{"executor/sessions", 0.15},
	{"executor/sessions/postgres", 0.15},
	{"executor/checkpoint", 0.3},
	{"", 0.05},
}

// Minutes of make test after preparation: in all, of them for building before the lanes and for the
// tests that run alone after them, and for the checks, which are part of a lane.
const (
	budgetMinutes = 20.0
	otherMinutes  = 2.0
	checkMinutes  = 2.5
)

// budget returns the minutes of a package.
func budget(dir string) float64 {
	for _, b := range budgets {
		if b.dir == dir {
			return b.minutes
		}
	}
	return budgets[len(budgets)-1].minutes
}
