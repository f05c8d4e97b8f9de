// The client of E2B's control plane, for the operations that the adapter uses: change openapi.yaml
// and run go generate.

package api

//go:generate go tool oapi-codegen -config generate.yaml -o api.gen.go openapi.yaml
