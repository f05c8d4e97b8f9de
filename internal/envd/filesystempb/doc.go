// Package filesystempb has the messages and procedures of the service of files that E2B's daemon
// speaks. They are written from what is known of the protocol and generated: change
// filesystem.proto and run go generate, with protoc of Debian's packages protobuf-compiler and
// libprotobuf-dev.
package filesystempb

//go:generate sh -c "protoc --plugin=protoc-gen-go=$(go tool -n protoc-gen-go) --plugin=protoc-gen-connect-go=$(go tool -n protoc-gen-connect-go) --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix= filesystem.proto"
