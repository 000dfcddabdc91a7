package log

// FeatureVersion is the highest version of behaviour that this program can
// apply. The replicated one decides what is written (SAFETY D1): whatever servers
// agree on, an event, a result, a refusal's text, what is remembered of change
// ids, is what the program of that version made, byte for byte.
const FeatureVersion = 2

// The feature versions. Code asks for the one that brought what it does.
const (
	// FeatureFirst is what there was before there was a second.
	FeatureFirst = 1
	// FeatureContained: what one change, client or clock can do to others ends at
	// limits that deciding knows. Refusals quote at most a part of what was sent,
	// results have a limit, an event that would be too large is refused, a change id
	// is bound to its content and its author, what is remembered of ids depends on
	// no client's clock, and an operator's entry can set the log's time back.
	FeatureContained = 2
)

// The limits of what a change may be, and of what becomes of one. All servers
// know them when they decide, so that each refuses what another would; the server
// that a client asked knows them too, and refuses what could never be accepted
// before it is written. Limits has them with their names and reasons.
//
// Those of feature version 1 are of the programs that had no other: a change is
// measured by the rest from FeatureContained on.
const (
	MaxOps         = 1024    // operations in one change
	MaxEventBytes  = 1 << 20 // one encoded event
	MaxChangeBytes = 1 << 20 // one encoded change
	MaxActorBytes  = 256
	MaxNameBytes   = 64   // names, aliases, models, states
	MaxTextBytes   = 1024 // descriptions, comments and other text

	MaxIDBytes      = 128       // the id of an operation's object
	MaxSetNames     = 128       // fields that one operation names
	MaxOptions      = 8         // options of one operation
	MaxListElements = 1024      // of any list that an object has
	MaxUnknownBytes = 16 << 10  // of an object: fields that this program does not know
	MaxObjectBytes  = 384 << 10 // one encoded object
	MaxChangeEvents = 16 << 20  // all encoded events of one change

	MaxQuoteBytes   = 128      // of what a client sent, in one message about it
	MaxMessageBytes = 4 << 10  // one text of a refusal
	MaxElements     = 64       // fields that one refusal names
	MaxValues       = 64       // values that a refusal names of one field
	MaxResultBytes  = 64 << 10 // one encoded result
)

// Limit is one of the limits, as docs/safety.md has it.
type Limit struct {
	Name  string // as refusals name it
	Value int
	Unit  string
	Why   string
}

// Limits are all of them.
var Limits = []Limit{
	{"change_bytes", MaxChangeBytes, "bytes", "a change is held in memory many times over: in queues, in raft's log, on each connection"},
	{"operations", MaxOps, "operations of a change", "one change is decided and applied in one step, in which nobody else is served"},
	{"actor_bytes", MaxActorBytes, "bytes", "each event of the change carries it"},
	{"id_bytes", MaxIDBytes, "bytes of an operation's id", "the longest id there can be, a revocation's, has 80"},
	{"set_names", MaxSetNames, "fields that an operation names", "no kind has half as many; each that is refused is an element of the answer"},
	{"name_bytes", MaxNameBytes, "bytes", "names stand in indexes, metrics and kernel objects"},
	{"text_bytes", MaxTextBytes, "bytes", "each event of an object carries all its texts, twice when they change"},
	{"options", MaxOptions, "options of an operation", "there are three"},
	{"list_elements", MaxListElements, "elements of a list in an object", "an event shows the whole list, and an index may have a row for each element"},
	{"unknown_bytes", MaxUnknownBytes, "bytes of fields of newer programs in one object", "they are kept and sent on unread, so that nothing else bounds them"},
	{"object_bytes", MaxObjectBytes, "bytes", "an update's event has an object and its old values, and both must fit one event"},
	{"event_bytes", MaxEventBytes, "bytes", "a frame of the feed holds one event, and every reader makes room for one"},
	{"change_events_bytes", MaxChangeEvents, "bytes of all events of one change", "a stream never splits a change: who reads it holds all of it"},
	{"quote_bytes", MaxQuoteBytes, "bytes of input that a message quotes", "enough to find what was meant"},
	{"message_bytes", MaxMessageBytes, "bytes of one text of a refusal", "the longest that is meant, a list of 64 networks, has 2,500"},
	{"elements", MaxElements, "fields that a refusal names", "nobody reads more; it says how many more there are"},
	{"values", MaxValues, "values that a refusal names of a field", "nobody reads more; it says how many more there are"},
	{"result_bytes", MaxResultBytes, "bytes", "each server remembers the results of 200,000 changes for their retries"},
}
