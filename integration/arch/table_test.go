package arch

// modulePath is the module's name in go.mod.
const modulePath = "rutter"

// row is one line of the import table of DESIGN §3.
type row struct {
	pkg   string
	may   []string // packages of ours that it may import; "*" is all
	tests []string // what its tests may import besides
	why   string
}

// importTable is DESIGN §3. A package without a row is held to the row of its
// nearest parent, and may also import what that parent's folder holds.
var importTable = []row{
	{
		pkg: "log",
		why: "everybody speaks its words, so it can depend on nobody",
	},
	{
		pkg: "log/feed", may: []string{"log"},
		why: "a stream of entries needs no state: a follower can be written without projections",
	},
	{
		pkg: "log/intake", may: []string{"log"},
		why: "the frames of writing are shared by server and client, which do not know each other",
	},
	{
		pkg: "log/report", may: []string{"log"},
		why: "what a compute node reports is said alike by an agent and a server, which do not know each other",
	},
	{
		pkg: "log/vmrule", may: []string{"log"},
		why: "which fields of a VM are its networks' is one rule, for servers and for the command line",
	},
	{
		pkg: "log/archive", may: []string{"log", "log/feed"},
		why: "a file of entries is read without a server, and has their frames",
	},
	{
		pkg: "log/changetest", may: []string{"log"},
		why: "tests of deciding and of applying make their changes alike",
	},
	{
		pkg: "log/query", may: []string{"log"},
		why: "which entries are meant is the same question at a server, a client and a folder",
	},
	{
		pkg: "log/budget",
		why: "what a party may have done for it has one table, for who writes the log and for who shows it",
	},
	{
		pkg: "log/line", may: []string{"log"},
		why: "how entries look is the same wherever they come from",
	},
	{
		pkg: "projections", may: []string{"log"},
		tests: []string{"log/changetest", "projections/internal/worldtest", "projections/rules"},
		why:   "the meaning of the log may depend on the log only, or servers would differ",
	},
	{
		pkg: "projections/rules", may: []string{"log", "projections"},
		tests: []string{"log/changetest", "projections/desired", "projections/internal/worldtest"},
		why:   "what is accepted is decided from the state, which does not know how",
	},
	{
		pkg: "projections/desired", may: []string{"log", "projections"},
		tests: []string{"log/changetest", "projections/internal/worldtest", "projections/rules"},
		why:   "what a kernel must hold follows from the state alone, on a server as on the compute node",
	},
	{
		pkg: "projections/internal/worldtest", may: []string{"log", "log/changetest", "projections", "projections/desired"},
		why: "the tests of this folder share a small cloud; how its changes are decided they say themselves",
	},
	{
		pkg: "raftstore", may: []string{"log", "log/budget", "projections", "projections/rules"},
		tests: []string{"log/changetest", "projections/desired"},
		why:   "agreement and keeping know nothing of HTTP or of compute nodes",
	},
	{
		pkg: "api", may: []string{"log", "log/budget", "log/feed", "log/intake", "log/query", "projections", "projections/desired", "api/liveness", "api/vmm", "api/console", "api/auth/matrix", "api/triton/vmapi", "log/vmrule", "api/auth/audit", "api/asked"},
		tests: []string{"raftstore", "api/client", "projections/rules"},
		why:   "it sees the store through small interfaces that it declares, so the store can change beneath",
	},
	{
		pkg: "api/auth/matrix", may: []string{"log", "projections"},
		why: "who may do what is a table and a pure decision, so that it can be read, and asked everywhere",
	},
	{
		pkg: "api/auth/pki", may: []string{"log", "api/auth/matrix"},
		why: "certificates are made and judged from bytes and a time, by servers, agents and commands alike",
	},
	{
		pkg: "api/auth/tlsgate", may: []string{"log", "api/auth/matrix", "api/auth/pki"},
		why: "TLS is one thing for every port and every client, which know nothing of each other",
	},
	{
		pkg: "api/auth/enrol", may: []string{"log", "log/budget", "projections", "api/auth/matrix", "api/asked", "api/auth/pki"},
		tests: []string{"projections/rules"},
		why:   "who gets a certificate is decided from the log, without files and connections",
	},
	{
		pkg: "api/asked", may: []string{"log"},
		why: "what a request asked for is the same for each surface that makes a change of it and of what there is",
	},
	{
		pkg: "api/auth/audit",
		why: "a bounded file of records, which knows nothing of what it is told",
	},
	{
		pkg: "api/console",
		why: "a page is files and headers: what it shows it asks of the API, from the browser",
	},
	{
		pkg: "api/liveness", may: []string{"log", "projections"},
		tests: []string{"projections/rules"},
		why:   "who is there and how far is judged from sessions, without connections, HTTP or Raft",
	},
	{
		pkg: "api/triton/changefeed", may: []string{"log"},
		why: "Triton's feed is another form of the log, and needs nothing but its entries",
	},
	{
		pkg: "api/auth/allow", may: []string{"api/auth/matrix"},
		why: "an address is let in or not before anybody knows what it asks for",
	},
	{
		pkg: "api/triton/napi", may: []string{"log", "log/budget", "projections", "api", "api/auth/matrix"},
		tests: []string{"projections/rules"},
		why:   "NAPI's words are another form of the state; of the API it needs to know when a write may be tried again",
	},
	{
		pkg: "api/triton/changefeed/listen",
		why: "who listens to a feed need not know what serves it",
	},
	{
		pkg: "api/triton/cnapi", may: []string{"log", "log/budget", "projections", "agent/sysinfo", "api/asked"},
		tests: []string{"projections/rules"},
		why:   "CNAPI's words are another form of the state; what a node says of itself has one form, which agents write and servers read",
	},
	{
		pkg: "agent/task", may: []string{"log", "projections", "agent/vminfo"},
		tests: []string{"projections/rules"},
		why:   "what a node is asked to do is done without knowing how the asking came",
	},
	{
		pkg: "agent/sysinfo", may: []string{"log"},
		why: "what a node says of itself is a form: who gathers it, and who reads it, know nothing of each other",
	},
	{
		pkg: "api/vmm", may: []string{"log", "log/feed", "projections"},
		tests: []string{"agent/vminfo", "projections/rules"},
		why:   "what CNs say of their VMs is pulled and recorded without HTTP of ours, sessions or Raft",
	},
	{
		pkg: "api/triton/netreport", may: []string{"log", "log/report", "projections"},
		tests: []string{"projections/rules"},
		why:   "what CNs report of their NICs is written without sessions or Raft",
	},
	{
		pkg: "api/triton/vmapi", may: []string{"log", "log/budget", "log/vmrule", "projections"},
		tests: []string{"projections/rules"},
		why:   "VMAPI's surface is a handler over the log and its state",
	},
	{
		pkg: "api/client", may: []string{"log", "log/feed", "log/intake"},
		tests: []string{"api", "projections", "raftstore"},
		why:   "programs that use the client must not be linked with a server",
	},
	{
		pkg: "agent", may: []string{"log", "log/feed", "projections", "projections/desired", "api/client", "agent/link", "agent/miss", "agent/vminfo"},
		tests: []string{"api", "raftstore", "projections/rules"},
		why:   "a compute node has no Raft; it reaches the servers through their API only",
	},
	{
		pkg: "agent/link", may: []string{"log", "projections", "projections/desired", "agent/miss"},
		why: "the kernel's side of an agent needs what is wanted, not where that came from",
	},
	{
		pkg: "agent/miss", may: []string{"log"},
		why: "what the kernel misses is heard alike for an agent and for a varpd, which answer it in their own ways",
	},
	{
		pkg: "agent/varpd", may: []string{"log", "varp", "agent/link", "agent/miss"},
		why: "a node without an agent resolves by SVP alone: of ours it needs the protocol and the kernel",
	},
	{
		pkg: "agent/netsync", may: []string{"log", "log/report", "projections", "agent/sysinfo", "agent/vminfo"},
		tests: []string{"api/triton/netreport", "projections/rules"},
		why:   "what VMs and the log say of NICs is compared without knowing how servers are reached",
	},
	{
		pkg: "agent/vminfo", may: []string{"log", "projections"},
		why: "the VMs of a node are watched without knowing the servers",
	},
	{
		pkg: "varp", may: []string{"log"},
		tests: []string{"integration/svpclient"},
		why:   "SVP asks a small Lookup, so that it runs on servers, on agents and against portolan alike",
	},
	{
		pkg: "cmd", may: []string{"*"},
		why: "the one place that knows everybody, and only wires",
	},
	{
		pkg: "cmd/rutter/importcmd", may: []string{"log", "projections", "projections/rules", "api/client", "cmd/rutter/term"},
		why: "what another system knows is judged by the rules of the log, and written as any client writes",
	},
	{
		pkg: "integration", may: []string{"*"},
		why: "it runs the real thing, whatever that takes",
	},
}

// maxFileLines is the length from which a file without _test in its name needs
// an exception in longFiles, and hardFileLines the length that no exception
// lifts.
const (
	maxFileLines  = 500
	hardFileLines = 600
)

// longFiles lists the files over maxFileLines, each with its reason.
var longFiles = map[string]string{}

// maxFuncLines is about a screen.
const maxFuncLines = 70

// longFuncs lists the functions over maxFuncLines as "path.go Receiver.Name" or
// "path.go Name", each with its reason.
var longFuncs = map[string]string{}

// pureDirs are the packages that must give the same answer on every server.
var pureDirs = map[string]bool{"log": true, "log/line": true, "log/query": true, "projections": true, "projections/desired": true, "projections/rules": true}

// impureImports are the standard packages that bring a clock, randomness, a
// goroutine, a file, a socket or a logger; a name stands for everything below it
// as well. Packages of other modules are impure unless pureImports has them.
var impureImports = map[string]string{
	"context":       "cancellation is a clock",
	"crypto/rand":   "randomness: a seed is stamped into the change",
	"hash/maphash":  "its seed differs in each process",
	"io/fs":         "files",
	"io/ioutil":     "files",
	"log":           "a logger",
	"log/slog":      "a logger",
	"math/rand":     "randomness: a seed is stamped into the change",
	"net":           "sockets",
	"os":            "files and the environment",
	"path/filepath": "files",
	"plugin":        "files",
	"runtime":       "differs between machines",
	"sync":          "goroutines",
	"syscall":       "the system",
	"testing":       "belongs into tests",
	"unsafe":        "differs between machines",
}

// pureImports are the packages that a pure one may use although their names say
// otherwise, with what is below them.
var pureImports = map[string]string{
	"net/netip":                         "addresses as values",
	"github.com/vmihailenco/msgpack/v5": "the codec of DESIGN §4",
}

// timeForFormatting are the names of package time that a pure package may use:
// those that turn a number into text and back.
var timeForFormatting = map[string]bool{
	"Time": true, "Duration": true, "Unix": true, "UnixMilli": true, "UnixMicro": true,
	"Parse": true, "ParseDuration": true, "RFC3339": true, "RFC3339Nano": true, "UTC": true, "Date": true,
	"Month": true, "Weekday": true,
	"Nanosecond": true, "Microsecond": true, "Millisecond": true, "Second": true, "Minute": true, "Hour": true,
}
