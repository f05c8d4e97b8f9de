package flytest

// Op names an operation of the API.
type Op string

// The operations.
const (
	OpCreateApp Op = "create-app"
	OpGetApp    Op = "get-app"
	OpListApps  Op = "list-apps"
	OpDeleteApp Op = "delete-app"
	OpCreate    Op = "create"
	OpList      Op = "list"
	OpGet       Op = "get"
	OpUpdate    Op = "update"
	OpDestroy   Op = "destroy"
	OpStart     Op = "start"
	OpStop      Op = "stop"
	OpSuspend   Op = "suspend"
	OpRestart   Op = "restart"
	OpSignal    Op = "signal"
	OpWait      Op = "wait"
	OpExec      Op = "exec"
	OpProcesses Op = "ps"
	OpEvents    Op = "events"
	OpVersions  Op = "versions"
	OpLease     Op = "lease"
	OpMetadata  Op = "metadata"
	OpCordon    Op = "cordon"
	OpToken     Op = "token"
	OpIP        Op = "ip"
	OpPlatform  Op = "platform"
	OpPolicy    Op = "network-policy"
	OpRelease   Op = "release" // of a lease; no rate counts it
	OpVolumes   Op = "volumes"
	OpSecrets   Op = "secrets"
	OpGraphQL   Op = "graphql" // what clients ask Fly's other API for
)

const (
	inApp     = "/v1/apps/{app}"
	inMachine = "/v1/apps/{app}/machines/{id}"
)

// routes are the paths of the API.
func routes() []route {
	return []route{
		{"GET " + inApp, OpGetApp, scopeApp, getApp},
		{"POST /v1/apps", OpCreateApp, scopeNone, createApp},
		{"GET /v1/apps", OpListApps, scopeNone, listApps},
		{"DELETE " + inApp, OpDeleteApp, scopeApp, deleteApp},
		{"POST " + inApp + "/machines", OpCreate, scopeApp, create},
		{"GET " + inApp + "/machines", OpList, scopeApp, list},
		{"GET " + inMachine, OpGet, scopeMachine, get},
		{"POST " + inMachine, OpUpdate, scopeMachine, update},
		{"DELETE " + inMachine, OpDestroy, scopeMachine, destroy},
		{"POST " + inMachine + "/start", OpStart, scopeMachine, start},
		{"POST " + inMachine + "/stop", OpStop, scopeMachine, stop},
		{"POST " + inMachine + "/suspend", OpSuspend, scopeMachine, suspend},
		{"POST " + inMachine + "/restart", OpRestart, scopeMachine, restart},
		{"GET " + inMachine + "/wait", OpWait, scopeMachine, wait},
		{"POST " + inMachine + "/exec", OpExec, scopeMachine, execute},
		{"POST " + inMachine + "/signal", OpSignal, scopeMachine, signal},
		{"GET " + inMachine + "/ps", OpProcesses, scopeMachine, processes},
		{"GET " + inMachine + "/events", OpEvents, scopeMachine, events},
		{"GET " + inMachine + "/versions", OpVersions, scopeMachine, versions},
		{"GET " + inMachine + "/lease", OpLease, scopeMachine, findLease},
		{"POST " + inMachine + "/lease", OpLease, scopeMachine, acquireLease},
		{"DELETE " + inMachine + "/lease", OpRelease, scopeMachine, releaseLease},
		{"GET " + inMachine + "/metadata", OpMetadata, scopeMachine, getMetadata},
		{"PUT " + inMachine + "/metadata", OpMetadata, scopeMachine, mergeMetadata(true)},
		{"PATCH " + inMachine + "/metadata", OpMetadata, scopeMachine, mergeMetadata(false)},
		{"GET " + inMachine + "/metadata/{key}", OpMetadata, scopeMachine, getMetadataKey},
		{"POST " + inMachine + "/metadata/{key}", OpMetadata, scopeMachine, setMetadataKey},
		{"DELETE " + inMachine + "/metadata/{key}", OpMetadata, scopeMachine, deleteMetadataKey},
		{"POST " + inMachine + "/cordon", OpCordon, scopeMachine, cordon(true)},
		{"POST " + inMachine + "/uncordon", OpCordon, scopeMachine, cordon(false)},
		{"POST " + inApp + "/deploy_token", OpToken, scopeApp, deployToken},
		{"GET " + inApp + "/ip_assignments", OpIP, scopeApp, listIPs},
		{"POST " + inApp + "/ip_assignments", OpIP, scopeApp, assignIP},
		{"DELETE " + inApp + "/ip_assignments/{ip}", OpIP, scopeApp, deleteIP},
		{"GET " + inApp + "/network_policies", OpPolicy, scopeApp, listPolicies},
		{"POST " + inApp + "/network_policies", OpPolicy, scopeApp, setPolicy},
		{"GET " + inApp + "/volumes", OpVolumes, scopeApp, noVolumes},
		{"GET " + inApp + "/secrets", OpSecrets, scopeApp, noSecrets},
		{"GET " + inApp + "/secretkeys", OpSecrets, scopeApp, noSecrets},
		{"POST /graphql", OpGraphQL, scopeNone, graphQL},
		{"GET /v1/platform/regions", OpPlatform, scopeNone, listRegions},
		{"POST /v1/platform/placements", OpPlatform, scopeNone, placements},
	}
}
