// Package flytest is the Machines API of Fly.io over a Docker engine: a Machine is a container.
//
// It is for people who try their Fly configuration on a laptop (execbroker emulate fly), and what
// package flymachines talks to in tests.
//
//	s, err := flytest.Start(ctx, flytest.Config{Apps: []flytest.App{{Name: "sandboxes"}}})
//	...
//	api, edge := s.API, s.Edge // what is https://api.machines.dev and https://sandboxes.fly.dev with Fly
//	token := s.Token()
//	...
//	err = s.Close()            // removes every Machine
//
// [New] makes one that a program serves by itself.
//
// # What is the same as with Fly
//
// Paths, bodies, states, events, waits, leases, rate limits and errors, as far as they are publicly
// known, and of Fly's GraphQL API what flyctl asks for before it speaks to this one: apps,
// organizations, regions, the digest of an image. A Machine's main process is what init of its
// configuration or else the image says, below an init of the emulator, as root unless the image
// says otherwise, with files[], env, the FLY_ variables and the guest's memory and processors. Its
// root file system starts anew at every start. What a configuration has and the emulator cannot do
// is refused with 400 and a text that begins with "flytest:"; what has no effect (checks, metrics,
// autostop, registration in DNS) is logged once for each Machine.
//
// # How Machines are reached
//
// With Fly a program in the same network connects to private_ip. Here [Server.DialContext] does,
// for a port of any Machine, given as "[fdaa:...]:8080" or "<id>.vm.<app>.internal:8080". It
// belongs in the DialContext of an http.Transport. From another process there are [Server.Proxy],
// which stands for the Fly Proxy and heeds fly-force-instance-id, and the ports that a Machine's
// services name and [Config.Publish] adds: they are published on the loopback address of the
// engine, on ports that [Server.Published] tells.
//
// # Isolation
//
// With Fly a Machine is a virtual machine, and what its root does stays in it. Here it is a
// container with the rights that root of such a guest needs: it may mount, make namespaces and
// change its network (CAP_SYS_ADMIN, CAP_NET_ADMIN and more, without AppArmor). That is NOT a
// boundary against hostile code: root in such a container can become root of the engine's machine.
// The emulator is for development and tests, with code that you would run yourself. Clients of the
// API can start any image with these rights as well, so the API has a token and listens on
// loopback.
//
// # What is left
//
// [Server.Close] removes what Machines have left. If the process is killed, their containers go
// when the next Server starts on the same machine and engine: each carries a label that names a
// lock file which its emulator holds while it lives.
package flytest
