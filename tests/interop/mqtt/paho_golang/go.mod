module interop

go 1.24.0

require (
	github.com/eclipse/paho.golang v0.23.0
	golang.org/x/net v0.43.0
)
