package openapi

// parameter is a parameter of a query, a path, or a header, which means the same wherever
// it is taken.
type parameter struct {
	text   string
	schema schema
}

func text(words string) parameter   { return parameter{words, schema{"type": "string"}} }
func flag(words string) parameter   { return parameter{words, schema{"type": "boolean"}} }
func number(words string) parameter { return parameter{words, schema{"type": "integer", "minimum": 0}} }

const (
	placeWords = "a seq, or a time"
	listWords  = "; several are parted by commas"
)

// parameters are those of queries. A list's filter that is missing here is the field of the
// same name.
var parameters = map[string]parameter{
	"consistent": flag("ask the leader first whether this server is up to date"),
	"min_seq":    text("wait until the server has applied this seq, or this cursor"),
	"at":         text("answer for the past: " + placeWords),
	"limit":      number("at most so many"),
	"offset":     number("leave out so many at first"),
	"wait":       text("fabric: answer when the compute nodes have programmed what the change concerns"),
	"timeout":    text("how long to wait, as in 10s"),
	"unique":     flag("exactly one must match; else the answer is 409"),
	"fields":     text("only these fields, parted by commas"),

	"after":   text("only entries after this seq, or this cursor"),
	"cursor":  text("only entries after this cursor"),
	"follow":  flag("go on with new entries until the client ends the connection"),
	"last":    number("only the last so many entries"),
	"kind":    text("only objects of this kind" + listWords),
	"action":  text("only create, update or delete" + listWords),
	"object":  text("only the object with this id" + listWords),
	"owner":   text("only objects of this owner, before or after the event" + listWords),
	"vnet":    text("only what is on the vnet with this number" + listWords),
	"network": text("only the network with this UUID, and the NICs that are on it" + listWords),
	"cn":      text("only what concerns the compute node with this UUID" + listWords),
	"ip":      text("only NICs that have this address" + listWords),
	"actor":   text("only what this actor asked for" + listWords),
	"path":    text("only updates that changed the field with this JSON name" + listWords),
	"text":    text("only entries whose line has this text, in either case of letters"),
	"before":  text("only entries before this seq, or what an answer gave as next"),
	"count":   flag("count, and leave the entries out"),
	"since":   text("not before this time, RFC 3339"),
	"until":   text("not after this seq or time"),

	"name":     text("a name, an address, or the beginning of an id"),
	"from":     text("the first place, or the VM at which packets begin"),
	"to":       text("the second place, or the VM or address to which packets go"),
	"mac":      text("a MAC address"),
	"kernels":  flag("ask the agents of both compute nodes what their kernels have"),
	"watch_ms": number("milliseconds between two looks at the kernels"),

	"ask":        flag("ask the agent of the compute node"),
	"nic":        text("the MAC of a NIC of the compute node"),
	"everywhere": flag("the sessions of all servers"),
	"seq":        text("the seq that is waited for"),
	"scope":      text("what is waited for" + listWords),
	"vm":         text("only what this VM has there"),

	"age":     text("as if this much time of the log was kept"),
	"events":  number("as if so many events were kept"),
	"bytes":   number("as if so many bytes were kept"),
	"verbose": flag("all that an operator must act on"),
}

// pathParameters are those of paths, by their name in the pattern.
var pathParameters = map[string]parameter{
	"id":      text("the id of the object, or its name where that is unique"),
	"subject": text("the subject of the grant, which may have slashes"),
	"vnet":    number("the number of the vnet"),
}
