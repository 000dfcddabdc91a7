package guard

import "rutter/api/auth/matrix"

// MaxConnections bounds the connections of a server: the 10,000 CNs of architecture
// section 13, and clients.
const MaxConnections = 16384

// Limits bound what one address and one identity may use of a server. Zero means the
// default of DefaultLimits. A client of this machine without TLS (matrix.Local, loopback)
// is bounded only by the limits of all together.
type Limits struct {
	// PerAddress bounds the connections of one address: with TLS after their handshake
	// (package tlsgate bounds those before), without TLS (--insecure) those of each other
	// machine, so that one node leaves connections for all others.
	PerAddress int
	// PerIdentity bounds the connections with one certificate, by role.
	PerIdentity map[matrix.Role]int
	// Rate bounds the requests per second of one identity, by role, with a burst of 10
	// seconds of it; 0: only Requests bounds them.
	Rate map[matrix.Role]int
	// Requests bounds the requests that are answered at once for identities with
	// certificates, without streams. When half of them are taken, each identity has its
	// share.
	Requests int
}

// DefaultLimits are the limits of a server.
func DefaultLimits() Limits {
	return Limits{
		PerAddress: MaxConnections / 4,
		PerIdentity: map[matrix.Role]int{
			matrix.CN: 16, // a feed, one that replaces it, and people's tools on the node
			// A proxy, or a program with many workers.
			matrix.Operator: 4096, matrix.Reader: 1024, matrix.Server: 1024,
			matrix.Join: 256, matrix.None: 16, matrix.Expired: 4,
		},
		Rate: map[matrix.Role]int{
			matrix.CN:     50, // a CN asks little except its feed
			matrix.Reader: 500, matrix.Server: 500, matrix.Foreign: 500,
			matrix.Join: 20, matrix.None: 10, matrix.Expired: 2,
			matrix.Operator: 0, // writers are bounded by the store's queue, in order
		},
		Requests: 2048,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	if l.PerAddress == 0 {
		l.PerAddress = d.PerAddress
	}
	if l.PerIdentity == nil {
		l.PerIdentity = d.PerIdentity
	}
	if l.Rate == nil {
		l.Rate = d.Rate
	}
	if l.Requests == 0 {
		l.Requests = d.Requests
	}
	return l
}

// Names of the limits, as metrics, the audit log and docs/security.md have them.
const (
	limitPerAddress  = "per_address"
	limitPerIdentity = "per_identity"
	LimitRate        = "rate"
	limitShare       = "share"
	LimitConnections = "connections" // of all; further ones wait in the kernel's queue
	LimitStreams     = "streams"
	LimitBudget      = "budget" // of work; rutter_budget_refused_total has each
)
