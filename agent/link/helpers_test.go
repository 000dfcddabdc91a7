package link

import (
	"rutter/agent/link/internal/linktest"
	"rutter/agent/link/plan"
)

// Short forms of linktest's.
var (
	mac    = linktest.MAC
	addr   = linktest.Addr
	prefix = linktest.Prefix
)

func texts(steps []plan.Step) []string {
	var list []string
	for _, s := range steps {
		list = append(list, s.String())
	}
	return list
}
