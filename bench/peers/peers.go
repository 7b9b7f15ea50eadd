//go:build peers

// Package peers names the programs that benches and interoperability tests run beside ours. A module of its own, so that go.sum
// pins every source they are built from.
package peers

import (
	_ "github.com/nsqio/nsq/apps/nsqadmin"
	_ "github.com/nsqio/nsq/apps/nsqd"
	_ "github.com/nsqio/nsq/apps/nsqlookupd"
)
