// Package conformancetest runs the suite of package conformance under go test, and tests the suite
// itself by planted faults.
//
// A package of an adapter has three functions for it:
//
//	func TestMain(m *testing.M) { os.Exit(conformancetest.Main(m, target)) }
//	func TestConformance(t *testing.T) { conformancetest.Test(t, target()) }
//	func TestFaults(t *testing.T) { conformancetest.TestFaults(t, faulty, conformancetest.FaultOptions{Golden: "testdata/faults.json"}) }
//
// where target makes a conformance.Target, and faulty one whose Open passes a function on as
// driver.Env.Wrap.
package conformancetest
