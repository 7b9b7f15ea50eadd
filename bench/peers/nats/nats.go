//go:build peers

// Package nats names nats-server, which stands beside our broker by its MQTT port. It is a module of its own: what it
// is built from may not change what nsqd is built from.
package nats

import _ "github.com/nats-io/nats-server/v2"
