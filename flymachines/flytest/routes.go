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
		{"GET " + inApp, OpGetApp, scopeApp, under(getApp)},
		{"POST /v1/apps", OpCreateApp, scopeNone, taking(createApp)},
		{"GET /v1/apps", OpListApps, scopeNone, under(listApps)},
		{"DELETE " + inApp, OpDeleteApp, scopeApp, under(deleteApp)},
		{"POST " + inApp + "/machines", OpCreate, scopeApp, taking(create)},
		{"GET " + inApp + "/machines", OpList, scopeApp, under(list)},
		{"GET " + inMachine, OpGet, scopeMachine, under(get)},
		{"POST " + inMachine, OpUpdate, scopeMachine, taking(update)},
		{"DELETE " + inMachine, OpDestroy, scopeMachine, under(destroy)},
		{"POST " + inMachine + "/start", OpStart, scopeMachine, changing(start)},
		{"POST " + inMachine + "/stop", OpStop, scopeMachine, offered(stop)},
		{"POST " + inMachine + "/suspend", OpSuspend, scopeMachine, changing(suspend)},
		{"POST " + inMachine + "/restart", OpRestart, scopeMachine, changing(restart)},
		{"GET " + inMachine + "/wait", OpWait, scopeMachine, wait},
		{"POST " + inMachine + "/exec", OpExec, scopeMachine, execute},
		{"POST " + inMachine + "/signal", OpSignal, scopeMachine, taking(signal)},
		{"GET " + inMachine + "/ps", OpProcesses, scopeMachine, processes},
		{"GET " + inMachine + "/events", OpEvents, scopeMachine, under(events)},
		{"GET " + inMachine + "/versions", OpVersions, scopeMachine, under(versions)},
		{"GET " + inMachine + "/lease", OpLease, scopeMachine, under(findLease)},
		{"POST " + inMachine + "/lease", OpLease, scopeMachine, offered(acquireLease)},
		{"DELETE " + inMachine + "/lease", OpRelease, scopeMachine, under(releaseLease)},
		{"GET " + inMachine + "/metadata", OpMetadata, scopeMachine, under(getMetadata)},
		{"PUT " + inMachine + "/metadata", OpMetadata, scopeMachine, mergeMetadata(true)},
		{"PATCH " + inMachine + "/metadata", OpMetadata, scopeMachine, mergeMetadata(false)},
		{"GET " + inMachine + "/metadata/{key}", OpMetadata, scopeMachine, under(getMetadataKey)},
		{"POST " + inMachine + "/metadata/{key}", OpMetadata, scopeMachine, taking(setMetadataKey)},
		{"DELETE " + inMachine + "/metadata/{key}", OpMetadata, scopeMachine, deleteMetadataKey},
		{"POST " + inMachine + "/cordon", OpCordon, scopeMachine, cordon(true)},
		{"POST " + inMachine + "/uncordon", OpCordon, scopeMachine, cordon(false)},
		{"POST " + inApp + "/deploy_token", OpToken, scopeApp, taking(deployToken)},
		{"GET " + inApp + "/ip_assignments", OpIP, scopeApp, under(listIPs)},
		{"POST " + inApp + "/ip_assignments", OpIP, scopeApp, taking(assignIP)},
		{"DELETE " + inApp + "/ip_assignments/{ip}", OpIP, scopeApp, under(deleteIP)},
		{"GET " + inApp + "/network_policies", OpPolicy, scopeApp, listPolicies},
		{"POST " + inApp + "/network_policies", OpPolicy, scopeApp, taking(setPolicy)},
		{"GET " + inApp + "/volumes", OpVolumes, scopeApp, noVolumes},
		{"GET " + inApp + "/secrets", OpSecrets, scopeApp, noSecrets},
		{"GET " + inApp + "/secretkeys", OpSecrets, scopeApp, noSecrets},
		{"POST /graphql", OpGraphQL, scopeNone, graphQL},
		{"GET /v1/platform/regions", OpPlatform, scopeNone, listRegions},
		{"POST /v1/platform/placements", OpPlatform, scopeNone, taking(placements)},
	}
}
