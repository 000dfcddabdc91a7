package arch

import (
	"os"
	"path/filepath"
	"strings"
)

// modulePath is the module's name in go.mod.
var modulePath = readModulePath()

// readModulePath reads it; make module changes it.
func readModulePath() string {
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		panic(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(strings.TrimPrefix(first, "module "))
}

// row is one line of the import table of architecture section 3.
type row struct {
	pkg   string
	may   []string // packages of ours that it may import; "*" is all
	tests []string // what its tests may import besides
	why   string
}

// importTable is architecture section 3. A package without a row is held to the row of its
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
		pkg: "log/vmobject", may: []string{"log"},
		why: "VMAPI's object of a VM is taken apart alike by servers and by a compute node's agent, which do not know each other",
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
		pkg: "log/zonename",
		why: "a server and a compute node, which do not know each other, check the names of zones alike",
	},
	{
		pkg: "log/refusals",
		why: "every listener that limits connections logs a refusal in the same manner",
	},
	{
		pkg: "log/boltpages", may: []string{"log"},
		why: "what a damaged bbolt file looks like is the same for a server's files and a compute node's cache",
	},
	{
		pkg: "log/moment", may: []string{"log"},
		why: "a place of the log is named alike at a terminal and at a server",
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
		pkg: "projections/rules", may: []string{"log", "projections", "projections/designation", "projections/underlay"},
		tests: []string{"log/changetest", "projections/desired", "projections/internal/worldtest"},
		why:   "what is accepted is decided from the state, which does not know how",
	},
	{
		pkg: "projections/underlay", may: []string{"log", "projections"},
		why: "what an underlay carries is the same for deciding, for a kernel and for a warning",
	},
	{
		pkg: "agent/underlay", may: []string{"log", "projections", "projections/underlay", "agent/internal/nlmsg"},
		tests: []string{"cmd/rutter/netlab"},
		why:   "the look at interfaces and paths needs the log's VTEPs, and nothing of the links",
	},
	{
		pkg: "projections/documents", may: []string{"log", "projections"},
		tests: []string{"projections/documents/source", "projections/rules", "projections/internal/worldtest"},
		why:   "what a document means follows from the state alone, so that a plan is what an apply does",
	},
	{
		pkg: "projections/documents/schema", may: []string{"log", "projections/documents"},
		tests: []string{"projections/documents/source", "projections/rules", "projections/internal/worldtest"},
		why:   "what a form may have follows from the table of kinds, for an editor, a command and the API",
	},
	{
		pkg: "projections/documents/source", may: []string{"log", "projections/documents"},
		tests: []string{"log/changetest", "projections", "projections/rules", "projections/internal/worldtest"},
		why:   "the text of documents is read and written the same way by all commands, and has no part in what they mean",
	},
	{
		pkg: "projections/undo", may: []string{"log", "projections", "projections/rules"},
		tests: []string{"log/changetest", "projections/internal/worldtest"},
		why:   "what takes entries back is found by the rules that will decide it, from the log and the state alone",
	},
	{
		pkg: "projections/designation", may: []string{"log", "projections"},
		why: "which server a VM goes to follows from the state alone, so that every server says the same",
	},
	{
		pkg: "projections/desired", may: []string{"log", "projections", "projections/naming", "projections/underlay"},
		tests: []string{"log/changetest", "projections/internal/worldtest", "projections/rules"},
		why:   "what a kernel must hold follows from the state alone, on a server as on the compute node",
	},
	{
		pkg: "projections/naming", may: []string{"log", "projections"},
		why: "what a name means is the same for a path, a command and a log without a server",
	},
	{
		pkg: "projections/foresee", may: []string{"log", "projections", "projections/desired", "projections/rules"},
		tests: []string{"log/changetest", "projections/internal/worldtest"},
		why:   "what changes would do follows from the state and the rules alone, for a plan as for a revert",
	},
	{
		pkg: "projections/answers", may: []string{"log", "projections", "projections/desired"},
		tests: []string{"log/changetest", "projections/internal/worldtest", "projections/rules"},
		why:   "what a guest is told follows from the state alone, and is what its kernel has",
	},
	{
		pkg: "projections/internal/worldtest", may: []string{"log", "log/changetest", "projections", "projections/desired"},
		why: "the tests of this folder share a small cloud; how its changes are decided they say themselves",
	},
	{
		pkg: "raftstore", may: []string{"log", "log/budget", "projections", "raftstore/history", "raftstore/internal/admission", "raftstore/internal/boltfile", "raftstore/internal/changesdb", "raftstore/internal/clocks", "raftstore/internal/command", "raftstore/internal/consent", "raftstore/internal/digest", "raftstore/internal/disk", "raftstore/internal/distrust", "raftstore/internal/hashilog", "raftstore/internal/joining", "raftstore/internal/lag", "raftstore/internal/metarow", "raftstore/internal/notify", "raftstore/internal/peer", "raftstore/internal/peer/orphan", "raftstore/internal/raftlog", "raftstore/internal/window", "raftstore/offline", "raftstore/skipped", "projections/rules"},
		tests: []string{"integration/simulate/disk", "raftstore/internal/raftlog/wal", "log/changetest"},
		why:   "agreement and keeping know nothing of HTTP or of compute nodes",
	},
	{
		pkg: "raftstore/history", may: []string{"log", "projections", "raftstore/internal/boltfile", "raftstore/internal/changesdb", "raftstore/internal/disk", "raftstore/internal/makeway", "raftstore/internal/raftlog", "raftstore/internal/readahead", "raftstore/internal/window"},
		tests: []string{"projections/desired", "projections/rules"},
		why:   "reading the past needs the file, not the server that writes it",
	},
	{
		pkg: "raftstore/offline", may: []string{"log", "raftstore/internal/boltfile", "raftstore/internal/changesdb", "raftstore/internal/command", "raftstore/internal/disk", "raftstore/internal/raftlog", "raftstore/internal/window", "raftstore/skipped"},
		why: "what is done to a stopped folder cannot wait for anything of a server",
	},
	{
		pkg: "raftstore/skipped", may: []string{"log", "raftstore/internal/digest", "raftstore/internal/metarow"},
		why: "what a skip says is the same on disk, between servers and to operators",
	},
	{
		pkg: "raftstore/internal/admission", may: []string{"log", "log/budget", "raftstore/internal/notify"},
		why: "who may write when is known without knowing what a change does",
	},
	{
		pkg: "raftstore/internal/changesdb", may: []string{"log", "projections", "raftstore/internal/boltfile", "raftstore/internal/digest", "raftstore/internal/disk", "raftstore/internal/makeway", "raftstore/internal/metarow", "raftstore/internal/notify", "raftstore/internal/readahead", "raftstore/internal/window", "raftstore/skipped"},
		why: "the file has one writer and one form, whatever is applied to it",
	},
	{
		pkg: "raftstore/internal/clocks", may: []string{"log"},
		why: "time is agreed from readings alone, so that it can be tested without servers",
	},
	{
		pkg: "raftstore/internal/command", may: []string{"log"},
		why: "what a raft entry asks for is the same for who applies it and who shows it",
	},
	{
		pkg: "raftstore/internal/consent", may: []string{"log"},
		why: "what an operator agreed to is one small file, whatever decides by it",
	},
	{
		pkg: "raftstore/internal/digest",
		why: "sums are compared by all that keep something, and depend on nothing",
	},
	{
		pkg: "raftstore/internal/distrust", may: []string{"raftstore/internal/changesdb", "raftstore/internal/disk", "raftstore/internal/raftlog"},
		why: "which files a start reads anew is known before any of them is opened",
	},
	{
		pkg: "raftstore/internal/joining", may: []string{"raftstore/internal/disk"},
		why: "whether a server joins for a vote is one small file, whatever decides by it",
	},
	{
		pkg: "raftstore/internal/lag", may: []string{"log"},
		why: "how far a replica is behind is judged from positions and times alone, so that it can be tested without servers",
	},
	{
		pkg: "raftstore/internal/makeway",
		why: "work beside the path of a change rests alike, whatever it works on",
	},
	{
		pkg: "raftstore/internal/metarow", may: []string{"log", "raftstore/internal/disk"},
		why: "all rows of meta have one form",
	},
	{
		pkg: "raftstore/internal/notify",
		why: "waking a goroutine needs nothing",
	},
	{
		pkg: "raftstore/internal/readahead",
		why: "what the kernel is told to read depends on no row",
	},
	{
		pkg: "raftstore/internal/window", may: []string{"log", "raftstore/internal/digest", "raftstore/internal/disk", "raftstore/internal/metarow"},
		why: "what is remembered of change ids depends on the log alone, or servers would differ",
	},
	{
		pkg: "raftstore/internal/disk",
		why: "how the file system is met is the same for each file, whatever it holds",
	},
	{
		pkg: "raftstore/internal/boltfile", may: []string{"log", "log/boltpages", "raftstore/internal/disk"},
		why: "what bbolt does to damaged files is met once, for raft.db and changes.db alike",
	},
	{
		pkg: "raftstore/internal/hashilog",
		why: "messages of hashicorp's libraries look like ours, whoever sends them",
	},
	{
		pkg: "raftstore/internal/peer", may: []string{"log", "log/refusals", "raftstore/internal/hashilog", "raftstore/internal/peer/heartbeat", "raftstore/internal/peer/pipelines", "raftstore/internal/peer/votes"},
		tests: []string{"integration/simulate/network"},
		why:   "servers reach each other without knowing what they ask and agree on",
	},
	{
		pkg: "raftstore/internal/peer/heartbeat", may: []string{"raftstore/internal/notify"},
		why: "holding raft's term still is one piece, which can go when raft does it",
	},
	{
		pkg: "raftstore/internal/peer/orphan",
		why: "standing for election at once is one piece, which sees the store through functions",
	},
	{
		pkg: "raftstore/internal/peer/pipelines", may: []string{"raftstore/internal/notify"},
		why: "what raft leaves undone in its pipelines is one piece, which can go when raft does it",
	},
	{
		pkg: "raftstore/internal/peer/votes",
		why: "asking twice for a vote is one piece, which can go when raft does it",
	},
	{
		pkg: "raftstore/internal/raftlog", may: []string{"log", "raftstore/internal/boltfile", "raftstore/internal/disk", "raftstore/internal/raftlog/checked", "raftstore/internal/raftlog/early", "raftstore/internal/raftlog/wal"},
		why: "raft's log is kept without knowing what its entries mean",
	},
	{
		pkg: "raftstore/internal/raftlog/checked", may: []string{"log", "raftstore/internal/boltfile", "raftstore/internal/disk"},
		why: "checksums of entries are put in and taken out in one place, which can go when the log stores have them",
	},
	{
		pkg: "raftstore/internal/raftlog/early", may: []string{"raftstore/internal/disk"}, tests: []string{"log"},
		why: "the order of the leader's writes is one piece, which can go when raft has it",
	},
	{
		pkg: "raftstore/internal/raftlog/wal", may: []string{"log", "raftstore/internal/boltfile", "raftstore/internal/disk", "raftstore/internal/hashilog"}, tests: []string{"raftstore/internal/raftlog/checked"},
		why: "what raft-wal lacks is added in one place, which can go when it has it",
	},
	{
		pkg: "api", may: []string{"api/support", "projections/naming", "log", "log/budget", "log/feed", "log/intake", "log/query", "projections", "api/feedserver", "api/internal/logread", "api/internal/logserver", "api/internal/nodes", "api/internal/overview", "api/liveness", "api/vmm", "api/console", "api/auth/matrix", "api/auth/guard", "api/auth/webcheck", "api/backend", "api/internal/writestream", "api/triton/vmapi", "log/vmrule", "api/auth/audit", "api/internal/rest", "projections/desired", "api/internal/openapi"},
		tests: []string{"raftstore", "api/client", "api/internal/apitest"},
		why:   "it sees the store through small interfaces that it declares, so the store can change beneath",
	},
	{
		pkg: "api/backend", may: []string{"projections/naming", "log/moment", "log", "projections", "api/auth/guard", "api/auth/matrix", "api/internal/rest", "projections/underlay"},
		why: "reading the state freshly and writing to it is the same for every route, whatever it shows",
	},
	{
		pkg: "api/internal/logread", may: []string{"log", "log/feed"},
		tests: []string{"api/internal/apitest"},
		why:   "the log is read, decoded and framed once for all streams of a server, whatever they filter",
	},
	{
		pkg: "api/internal/logserver", may: []string{"log", "log/feed", "log/query", "projections", "api/backend", "api/internal/logread", "api/internal/rest", "api/auth/guard", "api/auth/matrix"},
		why: "the log over HTTP needs its entries and who may see them, and no other path",
	},
	{
		pkg: "api/internal/nodemetrics", may: []string{"log", "log/budget", "log/feed", "projections"},
		why: "how far nodes are is measured from what they say, and no session waits for it",
	},
	{
		pkg: "api/feedserver", may: []string{"log", "log/feed", "projections", "api/internal/logread", "api/liveness", "api/internal/nodemetrics", "api/vmm", "api/auth/matrix", "api/auth/audit"},
		tests: []string{"api", "api/backend", "api/internal/apitest"},
		why:   "the stream of a compute node needs a connection and the log, and no HTTP",
	},
	{
		pkg: "api/internal/nodes", may: []string{"api/support", "projections/naming", "log", "log/feed", "projections", "projections/desired", "api/backend", "api/internal/logread", "api/internal/logserver", "api/feedserver", "api/liveness", "api/vmm", "api/internal/rest", "api/auth/guard", "api/auth/matrix", "api/auth/audit", "api/internal/openapi"},
		why: "what HTTP says of compute nodes is one surface: their feed, sessions, holds and barriers",
	},
	{
		pkg: "api/internal/overview", may: []string{"log", "projections", "api/auth/matrix", "api/backend", "api/internal/nodemetrics", "api/internal/nodes", "api/internal/rest"},
		tests: []string{"api/internal/apitest"},
		why:   "what is wrong and what happened lately is put together of what other packages know, and read by people only",
	},
	{
		pkg: "api/internal/openapi", may: []string{"log", "api/internal/rest", "projections/documents/schema"},
		why: "the form of OpenAPI is one thing, what each route says of itself another",
	},
	{
		pkg: "api/internal/apitest", may: []string{"log", "log/feed", "projections", "projections/rules"},
		why: "what tests of the API and of the feed share stands below both",
	},
	{
		pkg: "api/auth/matrix", may: []string{"log", "log/vmobject", "projections"},
		why: "who may do what is a table and a pure decision, so that it can be read, and asked everywhere",
	},
	{
		pkg: "api/auth/webcheck",
		why: "what a web page can make a browser send is refused before anything is known of the request, at every listener",
	},
	{
		pkg: "api/auth/internal/slots",
		why: "a bounded listener is the same for every port, whatever it admits",
	},
	{
		pkg: "api/auth/guard", may: []string{"log", "log/budget", "log/refusals", "projections", "api/auth/matrix", "api/auth/webcheck", "api/auth/audit", "api/auth/internal/slots", "api/internal/rest"},
		why: "who may ask and how much is decided before every request, whatever it asks for",
	},
	{
		pkg: "api/auth/pki", may: []string{"log", "api/auth/matrix"},
		why: "certificates are made and judged from bytes and a time, by servers, agents and commands alike",
	},
	{
		pkg: "api/auth/tlsgate", may: []string{"log", "log/budget", "api/auth/matrix", "api/auth/pki"},
		why: "TLS is one thing for every port and every client, which know nothing of each other",
	},
	{
		pkg: "api/auth/enrol", may: []string{"log", "log/budget", "projections", "api/auth/matrix", "api/internal/rest", "api/auth/pki"},
		tests: []string{"projections/rules"},
		why:   "who gets a certificate is decided from the log, without files and connections",
	},
	{
		pkg: "api/internal/writestream", may: []string{"log", "log/intake", "api/auth/audit", "api/auth/guard", "api/auth/matrix", "api/backend", "api/internal/rest"},
		why: "a stream of changes needs the store and who may write, and no other route",
	},
	{
		pkg: "api/internal/rest", may: []string{"log", "log/budget", "log/vmrule", "api/auth/matrix", "api/auth/webcheck"},
		why: "routes with their rights, bodies, errors and ETags are one kit for every surface, which decides nothing of what is served",
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
		pkg: "api/liveness", may: []string{"log", "log/feed", "projections"},
		tests: []string{"projections/rules"},
		why:   "who is there and how far is judged from sessions, without connections, HTTP or Raft",
	},
	{
		pkg: "api/triton/changefeed", may: []string{"log", "log/vmobject", "api/auth/webcheck", "api/internal/rest"},
		why: "Triton's feed is another form of the log, and needs nothing but its entries",
	},
	{
		pkg: "api/auth/allow", may: []string{"log", "log/refusals", "api/auth/matrix", "api/auth/webcheck", "api/auth/internal/slots", "api/internal/rest"},
		why: "an address is let in or not before anybody knows what it asks for",
	},
	{
		pkg: "api/triton/napi", may: []string{"log", "log/budget", "projections", "api/backend", "api/auth/matrix", "api/auth/webcheck", "api/internal/rest"},
		tests: []string{"projections/rules"},
		why:   "NAPI's words are another form of the state; of the API it needs to know when a write may be tried again",
	},
	{
		pkg: "api/triton/changefeed/listen",
		why: "who listens to a feed need not know what serves it",
	},
	{
		pkg: "api/triton/conformance",
		why: "what is documented of an interface is held against any server of it, and knows nothing of ours",
	},
	{
		pkg: "api/triton/cnapi", may: []string{"log", "log/budget", "log/vmrule", "projections", "projections/designation", "agent/sysinfo", "api/internal/rest", "api/reach", "api/auth/webcheck", "api/triton/internal/provision"},
		tests: []string{"api/internal/apitest", "projections/rules"},
		why:   "CNAPI's words are another form of the state; what a node says of itself has one form, which agents write and servers read",
	},
	{
		pkg: "api/triton/internal/provision", may: []string{"log", "projections"},
		tests: []string{"projections/rules"},
		why:   "what a new VM is in the log is the same for every surface that makes one",
	},
	{
		pkg: "api/triton/gateway", may: []string{"log", "log/vmobject", "log/vmrule", "projections", "api/auth/matrix", "api/auth/webcheck", "api/internal/rest", "api/triton/changefeed/listen", "api/triton/vmapi"},
		tests: []string{"api/internal/apitest", "api/triton/cnapi"},
		why:   "what the log does not have is asked for behind a surface; which that is, the surface need not know",
	},
	{
		pkg: "agent/task", may: []string{"log", "log/vmrule", "projections", "agent/vminfo/vmdoc", "agent/vminfo/vmmstate", "agent/vminfo/vmrun", "agent/vminfo/vmstore", "agent/vmsource"},
		tests: []string{"agent/internal/guesttest", "agent/vminfo", "agent/vminfo/manifests", "agent/vminfo/system", "projections/rules", "agent/vmsource"},
		why:   "what a node is asked to do is done without knowing how the asking came",
	},
	{
		pkg: "agent/sysinfo", may: []string{"log"},
		why: "what a node says of itself is a form: who gathers it, and who reads it, know nothing of each other",
	},
	{
		pkg: "api/reach", may: []string{"log", "projections"},
		why: "where servers dial nodes is decided in one place, for every surface that does",
	},
	{
		pkg: "api/vmm", may: []string{"log", "log/feed", "log/vmobject", "projections", "api/reach"},
		tests: []string{"agent/vminfo", "projections/rules"},
		why:   "what CNs say of their VMs is pulled and recorded without HTTP of ours, sessions or Raft",
	},
	{
		pkg: "api/triton/netreport", may: []string{"log", "log/report", "projections", "api/internal/rest"},
		tests: []string{"projections/rules"},
		why:   "what CNs report of their NICs is written without sessions or Raft",
	},
	{
		pkg: "api/triton/vmapi", may: []string{"agent/sysinfo", "log", "log/budget", "log/vmobject", "log/vmrule", "projections", "projections/designation", "api/auth/webcheck", "api/internal/rest", "api/triton/internal/provision"},
		tests: []string{"projections/rules"},
		why:   "VMAPI's surface is a handler over the log and its state",
	},
	{
		pkg: "api/client", may: []string{"log", "log/feed", "log/intake"},
		tests: []string{"api", "api/backend", "api/internal/apitest", "projections", "raftstore"},
		why:   "programs that use the client must not be linked with a server",
	},
	{
		pkg: "agent", may: []string{"log", "log/boltpages", "log/feed", "projections", "api/client", "agent/link", "agent/link/plan", "agent/link/view", "agent/miss", "agent/zone", "projections/desired"},
		tests: []string{"agent/filter", "api", "raftstore", "projections/desired", "projections/rules"},
		why:   "a compute node has no Raft; it reaches the servers through their API only",
	},
	{
		pkg: "agent/internal/nlmsg",
		why: "how messages of netlink follow each other is one thing for all sockets of a node",
	},
	{
		pkg: "agent/filter", may: []string{"log", "agent/internal/nlmsg"},
		tests: []string{"cmd/rutter/netlab"},
		why:   "what a kernel lets through is set from values, whoever wants them",
	},
	{
		pkg: "agent/link", may: []string{"log", "projections", "agent/filter", "agent/internal/nlmsg", "agent/link/plan", "agent/link/internal/tap", "agent/link/internal/wire", "agent/miss", "projections/desired"},
		tests: []string{"agent/link/internal/linktest", "projections/desired"},
		why:   "the kernel's side of an agent needs what is wanted, not where that came from",
	},
	{
		pkg: "agent/link/plan", may: []string{"log", "projections", "agent/filter", "projections/desired"},
		tests: []string{"agent/link/internal/linktest"},
		why:   "what to do to a kernel is decided from values, without one",
	},
	{
		pkg: "agent/link/internal/wire", may: []string{"log", "projections", "agent/filter", "agent/internal/nlmsg", "agent/link/plan", "projections/desired"},
		tests: []string{"agent/link/internal/linktest"},
		why:   "the bytes of a message follow from a step, whoever sends them",
	},
	{
		pkg: "agent/link/internal/tap", may: []string{},
		why: "an ioctl needs a name and numbers, whoever chose them",
	},
	{
		pkg: "agent/link/internal/linktest", may: []string{"log", "agent/filter", "projections", "projections/desired"},
		why: "what tests of a kernel begin with needs no kernel",
	},
	{
		pkg: "agent/link/view", may: []string{"log", "agent/filter", "agent/internal/nlmsg", "agent/link", "agent/link/internal/wire", "agent/link/plan", "agent/ports", "projections/desired"},
		tests: []string{"cmd/rutter/netlab"},
		why:   "a trace reads the kernel with sockets of its own, and one entry at a time: it shares with the manager only the form of messages",
	},
	{
		pkg: "agent/ports", may: []string{"log", "agent/filter", "projections/desired"},
		why: "what port security does is told in one form to operators, metrics and traces, and decided elsewhere",
	},
	{
		pkg: "agent/zone", may: []string{"log/zonename"},
		why: "which server a node follows depends on what servers say of themselves, and on no connection",
	},
	{
		pkg: "agent/metrics", may: []string{"log", "agent", "agent/filter", "agent/ports", "projections/desired"},
		why: "metrics are another form of the status: an agent works without them",
	},
	{
		pkg: "agent/miss", may: []string{"log", "agent/internal/nlmsg"},
		why: "what the kernel misses is heard alike for an agent and for a varpd, which answer it in their own ways",
	},
	{
		pkg: "agent/answer", may: []string{"log", "projections", "projections/answers", "projections/desired"},
		tests: []string{"agent/filter", "agent/link", "agent/link/plan", "cmd/rutter/netlab", "log/changetest", "projections/rules"},
		why:   "what a VM is told at its port follows from the log, however its link was made",
	},
	{
		pkg: "agent/varpd", may: []string{"log", "varp", "agent/link", "agent/link/plan", "agent/miss"},
		why: "a node without an agent resolves by SVP alone: of ours it needs the protocol and the kernel",
	},
	{
		pkg: "agent/netsync", may: []string{"log", "log/report", "projections", "agent/sysinfo", "agent/vminfo", "agent/vminfo/vmdoc", "agent/vminfo/vmmstate", "agent/vminfo/vmrun", "agent/vmsource"},
		tests: []string{"api/triton/netreport", "projections/rules"},
		why:   "what VMs and the log say of NICs is compared without knowing how servers are reached",
	},
	{
		pkg: "agent/vmlink", may: []string{"log", "log/feed", "log/vmobject", "agent/vminfo", "agent/vminfo/vmdoc", "agent/vminfo/vmmstate", "agent/vminfo/vmstore"},
		tests: []string{"agent/vminfo/manifests", "agent/vminfo/vmrun", "agent/vmsource"},
		why:   "what VMs say goes over the connection of an agent, which it knows by an interface only",
	},
	{
		pkg: "agent/vmsource", may: []string{"log", "agent/vminfo/vmdoc"},
		why: "what runs VMs and what watches them know each other by one interface",
	},
	{
		pkg: "agent/vmsource/internal/sourcetest", may: []string{"log", "agent/vminfo", "agent/vminfo/vmdoc", "agent/vmsource"},
		tests: []string{"agent/vminfo/manifests", "agent/vminfo/vminfod"},
		why:   "each source is held against the same rules",
	},
	{
		pkg: "agent/vmsource/registered", may: []string{"log", "agent/vminfo/vmdoc", "agent/vmsource", "projections"},
		tests: []string{"agent/vmsource/internal/sourcetest", "projections/rules"},
		why:   "programs of the node register VMs without knowing the agent's parts",
	},
	{
		pkg: "agent/vmsource/libvirt", may: []string{"log", "agent/vminfo/vmdoc", "agent/vmsource", "agent/vmsource/registered", "projections"},
		why: "domains are registered as other VMs are; libvirt is known here only",
	},
	{
		pkg: "agent/vminfo", may: []string{"log", "agent/vminfo/vmdoc", "agent/vminfo/vmstore", "agent/vmsource"},
		tests: []string{"agent/vminfo/vminfod"},
		why:   "what is served is what the store has, whatever told it",
	},
	{
		pkg: "agent/vminfo/vmdoc", may: []string{"log"},
		why: "the JSON of a VM is a value, which knows no system",
	},
	{
		pkg: "agent/vminfo/vmstore", may: []string{"log", "agent/vminfo/vmdoc", "agent/vmsource"},
		why: "sources and readers of VMs meet in a store, and do not know each other",
	},
	{
		pkg: "agent/vminfo/system", may: []string{"log", "agent/vminfo/vmdoc"},
		why: "what the node has of a VM is found alike by who watches it and by who runs it",
	},
	{
		pkg: "agent/vminfo/manifests", may: []string{"agent/vminfo/vmrun/qmp", "log", "agent/internal/nlmsg", "agent/vminfo/vmdoc", "agent/vminfo/vmstore", "agent/vminfo/system", "agent/vmsource"},
		tests: []string{"agent/vminfo/internal/vmtest"},
		why:   "the VMs of a node are watched without knowing the servers",
	},
	{
		pkg: "agent/vminfo/vminfod", may: []string{"log", "agent/vminfo/vmdoc", "agent/vminfo/vmstore", "agent/vmsource"},
		why: "whoever reads a vminfod need not know what serves it",
	},
	{
		pkg: "agent/vminfo/vmrun/qmp",
		why: "QEMU's protocol is spoken alike by who watches a machine and by who ends it",
	},
	{
		pkg: "agent/vminfo/vmrun", may: []string{"log", "agent/vminfo/vmrun/qmp", "agent/vminfo/vmdoc", "agent/vminfo/system"},
		tests: []string{"agent/internal/guesttest", "agent/vminfo/internal/vmtest", "agent/vminfo/vmstore"},
		why:   "VMs are started and stopped without being watched",
	},
	{
		pkg: "agent/vminfo/vmhelper", may: []string{"log", "agent/vminfo/system", "agent/vminfo/vmdoc", "agent/vminfo/vmrun", "agent/vmsource"},
		tests: []string{"agent/internal/guesttest", "agent/vminfo/internal/vmtest"},
		why:   "who asks for VMs to be run, and what runs them, are processes with different rights",
	},
	{
		pkg: "agent/vminfo/vmmstate", may: []string{"log", "agent/vminfo/vmdoc", "agent/vminfo/vmstore", "agent/vminfo/system", "agent/vminfo/vmrun", "agent/vmsource"},
		why: "incarnations are kept from what the store tells, without HTTP of servers",
	},
	{
		pkg: "agent/vminfo/internal/vmtest", may: []string{"log", "agent/vminfo", "agent/vminfo/manifests", "agent/vminfo/vmstore", "agent/vmsource"},
		why: "tests of a source and of a runner want a node to look at",
	},
	{
		pkg: "varp", may: []string{"log", "log/refusals", "varp/internal/evloop", "varp/internal/places", "varp/internal/slots", "varp/internal/spans"},
		tests: []string{"integration/svpclient"},
		why:   "SVP asks a small Lookup, so that it runs on servers, on agents and against portolan alike",
	},
	{
		pkg: "varp/internal/evloop",
		why: "waiting for connections knows nothing of what they say",
	},
	{
		pkg: "varp/internal/places", may: []string{"log"},
		why: "how far a client has read, and when a server may rely on it, is a rule of seqs and times",
	},
	{
		pkg: "varp/internal/spans", may: []string{"log"},
		why: "a set of numbers knows nothing of what is numbered",
	},
	{
		pkg: "varp/internal/slots",
		why: "a hash table of small rows knows nothing of what stands in them",
	},
	{
		pkg: "scripts/release",
		why: "what packs the program knows it as its users do: by its files, and by what it prints",
	},
	{
		pkg: "cmd", may: []string{"*"},
		why: "the one place that knows everybody, and only wires",
	},
	{
		pkg: "cmd/rutter/importcmd", may: []string{"log", "projections", "api/client", "cmd/rutter/output", "cmd/rutter/term", "projections/rules"},
		why: "what another system knows is judged by the rules of the log, and written as any client writes",
	},
	{
		pkg: "api/support",
		why: "what a daemon says of itself is the same for servers and agents, however it is asked for",
	},
	{
		pkg: "cmd/rutter/debugsocket", may: []string{"api/support", "cmd/rutter/localhttp", "cmd/rutter/output", "cmd/rutter/term"},
		why: "servers and agents have the same socket, which knows nothing of what they do",
	},
	{
		pkg: "cmd/rutter/supportcmd", may: []string{"api/client", "api/support", "cmd/rutter/debugsocket", "cmd/rutter/localhttp", "cmd/rutter/named", "cmd/rutter/output", "cmd/rutter/term", "log"},
		why: "a bundle is gathered by any client of the API, or of the sockets of one machine",
	},
	{
		pkg: "cmd/rutter/manpages", may: []string{"cmd/rutter/term"},
		why: "a manual is made of any commands, and knows none",
	},
	{
		pkg: "cmd/rutter/planprint", may: []string{"log", "projections/foresee", "cmd/rutter/output", "cmd/rutter/term"},
		tests: []string{"projections/desired"},
		why:   "a plan looks the same wherever it comes from",
	},
	{
		pkg: "cmd/rutter/applycmd", may: []string{"log", "projections", "projections/documents", "projections/documents/source", "projections/foresee", "api/client", "cmd/rutter/await", "cmd/rutter/output", "cmd/rutter/planprint", "cmd/rutter/term"},
		tests: []string{"log/changetest", "projections/rules"},
		why:   "what documents ask for is computed by pure packages, and written as any client writes",
	},
	{
		pkg: "cmd/rutter/revertcmd", may: []string{"log", "log/line", "log/moment", "log/query", "projections", "projections/foresee", "projections/naming", "projections/undo", "cmd/rutter/named", "api/client", "cmd/rutter/await", "cmd/rutter/output", "cmd/rutter/planprint", "cmd/rutter/term"},
		why: "what takes entries back is read and written as any client does",
	},
	{
		pkg: "cmd/rutter/tritoncmd", may: []string{"api/triton/conformance", "cmd/rutter/output", "cmd/rutter/term"},
		why: "a server is held against data, without a client of Rutter's own API",
	},
	{
		pkg: "cmd/rutter/messages",
		why: "texts of warnings and what to do: who logs knows nothing of it",
	},
	{
		pkg: "cmd/rutter/term", may: []string{"api/auth/matrix", "api/auth/pki", "api/auth/tlsgate", "api/client", "cmd/rutter/messages", "log", "log/moment", "varp"},
		why: "flags, usage and servers are named alike by every command, whatever it does",
	},
	{
		pkg: "cmd/rutter/output", may: []string{"cmd/rutter/term", "log/line"},
		why: "what is printed looks alike for every command, and is no command itself",
	},
	{
		pkg: "cmd/rutter/logprint", may: []string{"cmd/rutter/output", "cmd/rutter/term", "log", "log/line"},
		why: "entries are printed the same way by each command that shows some",
	},
	{
		pkg: "cmd/rutter/storeapi", may: []string{"api", "api/auth/matrix", "api/backend", "log", "projections", "raftstore", "raftstore/history"},
		why: "the store meets the interfaces of the API in one place, so that neither imports the other",
	},
	{
		pkg: "cmd/rutter/serve", may: []string{"cmd/rutter/messages", "cmd/rutter/sdnotify", "api", "api/auth/allow", "api/auth/audit", "api/auth/enrol", "api/auth/matrix", "api/auth/pki", "api/auth/tlsgate", "api/liveness", "api/reach", "api/triton/changefeed", "api/triton/cnapi", "api/triton/gateway", "api/triton/napi", "api/triton/netreport", "api/triton/vmapi", "api/vmm", "cmd/rutter/serviceaddr", "cmd/rutter/storeapi", "cmd/rutter/svpview", "cmd/rutter/term", "cmd/rutter/trust", "log", "log/budget", "log/zonename", "projections", "raftstore", "varp", "api/auth/webcheck", "projections/underlay", "api/backend", "cmd/rutter/backup", "api/support", "cmd/rutter/debugsocket"},
		why: "one constructor of a server, for the command, the demo, dev, tests and benches; it has nothing of a compute node",
	},
	{
		pkg: "cmd/rutter/serviceaddr", tests: []string{"cmd/rutter/netlab"},
		why: "an address is taken and lost without knowing what agrees on the leader, so that it can be tested without servers",
	},
	{
		pkg: "cmd/rutter/vmhost", may: []string{"agent/vminfo", "agent/vminfo/manifests", "agent/vminfo/system", "agent/vminfo/vmdoc", "agent/vminfo/vmhelper", "cmd/rutter/confine", "agent/vminfo/vminfod", "agent/vminfo/vmrun", "agent/vminfo/vmstore", "api/client", "api/triton/vmapi", "cmd/rutter/localhttp", "cmd/rutter/output", "cmd/rutter/term", "log", "log/vmrule", "agent/vmsource"},
		why: "the commands for VMs and the agent open a node's VMs the same way",
	},
	{
		pkg: "cmd/rutter/libvirtcmd", may: []string{"agent/vmsource/libvirt", "agent/vmsource/registered", "cmd/rutter/output", "cmd/rutter/term", "log"},
		why: "libvirt's hook is a program of its own, which knows the agent's socket only",
	},
	{
		pkg: "cmd/rutter/node", may: []string{"cmd/rutter/messages", "cmd/rutter/sdnotify", "agent", "agent/answer", "agent/filter", "agent/link", "agent/link/plan", "agent/link/view", "agent/metrics", "agent/ports", "agent/netsync", "agent/sysinfo", "agent/sysinfo/probe", "agent/task", "agent/vminfo", "agent/vminfo/vmmstate", "agent/vminfo/vmrun", "agent/vminfo/vmstore", "agent/vmlink", "api/auth/matrix", "api/auth/pki", "api/auth/tlsgate", "api/client", "cmd/rutter/localhttp", "cmd/rutter/pkiclient", "cmd/rutter/svpview", "cmd/rutter/term", "cmd/rutter/trust", "cmd/rutter/vmhost", "log", "log/feed", "projections", "projections/desired", "varp", "agent/underlay", "agent/vmsource", "agent/vmsource/registered", "agent/vminfo/vmdoc", "cmd/rutter/output", "agent/vmsource/libvirt", "agent/vminfo/vmhelper", "api/support", "cmd/rutter/debugsocket"},
		why: "one constructor of a compute node, for the command, the demo, dev and tests; it has no Raft",
	},
	{
		pkg: "cmd/rutter/await", may: []string{"api/client", "api/liveness", "cmd/rutter/output", "cmd/rutter/term"},
		why: "what a write waits for is said alike by each command that writes",
	},
	{
		pkg: "cmd/rutter/declarecmd", may: []string{"cmd/rutter/messages", "cmd/rutter/output", "cmd/rutter/term", "log", "projections", "projections/documents", "projections/documents/schema", "projections/documents/source"},
		why: "documents are made of a state, wherever that was read",
	},
	{
		pkg: "cmd/rutter/named", may: []string{"api/client", "cmd/rutter/output", "cmd/rutter/term", "log", "projections", "projections/naming"},
		why: "every command takes names, and lists candidates, in the same way",
	},
	{
		pkg: "cmd/rutter/objects", may: []string{"cmd/rutter/named", "api/client", "cmd/rutter/await", "cmd/rutter/output", "cmd/rutter/term", "log"},
		why: "every kind has the same commands, to which those of some kinds add",
	},
	{
		pkg: "cmd/rutter/svpview", may: []string{"log", "projections", "varp"},
		why: "SVP is answered from a state alike on servers and agents",
	},
	{
		pkg: "cmd/rutter/trust", may: []string{"api/auth/enrol", "api/auth/pki", "api/auth/tlsgate", "log", "projections"},
		why: "what the log says of trust is followed alike by servers and agents",
	},
	{
		pkg: "cmd/rutter/localhttp", may: []string{"api/auth/webcheck"},
		why: "a small port of a daemon needs to know nothing of what it serves",
	},
	{
		pkg: "cmd/rutter/pkiclient", may: []string{"api/auth/enrol", "api/auth/matrix", "api/auth/pki", "api/auth/tlsgate", "api/client", "cmd/rutter/term", "log"},
		why: "tokens and certificates are asked for alike by nodes, commands and rutter dev",
	},
	{
		pkg: "cmd/rutter/netlab",
		why: "namespaces and links on one machine need nothing of ours",
	},
	{
		pkg: "cmd/rutter/backup", may: []string{"cmd/rutter/confine", "cmd/rutter/subprocess", "log", "raftstore/offline"},
		tests: []string{"raftstore"},
		why:   "a server's backups are made by a process of their own, which knows files and no server",
	},
	{
		pkg: "cmd/rutter/subprocess",
		why: "a program that ends with its starter needs nothing of ours",
	},
	{
		pkg: "cmd/rutter/sdnotify",
		why: "what systemd is told is said alike by each daemon, and knows none of them",
	},
	{
		pkg: "cmd/rutter/confine",
		why: "what a process may do is taken from it without knowing what it is for",
	},
	{
		pkg: "scripts/monitoring",
		why: "makes files of tables: it needs the names of metrics, which a test compares with the page",
	},
	{
		pkg: "integration", may: []string{"*"},
		why: "it runs the real thing, whatever that takes",
	},
}

// testImports are what only tests need, with what is below each.
var testImports = map[string]string{
	modulePath + "/integration":         "integration imports the product, never the other way round",
	"testing":                           "belongs into tests",
	"pgregory.net/rapid":                "belongs into tests",
	"github.com/anishathalye/porcupine": "belongs into tests",
	"github.com/chromedp":               "belongs into tests",
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
var pureDirs = map[string]bool{"log": true, "log/line": true, "log/query": true, "projections": true, "projections/designation": true, "projections/desired": true, "projections/documents": true, "projections/documents/schema": true, "projections/foresee": true, "projections/naming": true, "projections/rules": true, "projections/undo": true, "projections/underlay": true}

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
	"github.com/vmihailenco/msgpack/v5": "the codec of architecture section 4",
}

// timeForFormatting are the names of package time that a pure package may use:
// those that turn a number into text and back.
var timeForFormatting = map[string]bool{
	"Time": true, "Duration": true, "Unix": true, "UnixMilli": true, "UnixMicro": true,
	"Parse": true, "ParseDuration": true, "RFC3339": true, "RFC3339Nano": true, "UTC": true, "Date": true,
	"Month": true, "Weekday": true,
	"Nanosecond": true, "Microsecond": true, "Millisecond": true, "Second": true, "Minute": true, "Hour": true,
}
