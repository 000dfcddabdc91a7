package log

// kinds is the table of kinds. Each stands at its number; the first place is
// empty, as 0 is no kind. The row of a kind is in its file, as that of NICs is in kind_nic.go.
var kinds = [...]*kind{
	KindNICTag:      &nicTagKind,
	KindNetwork:     &networkKind,
	KindNIC:         &nicKind,
	KindServer:      &serverKind,
	KindVM:          &vmKind,
	KindVMM:         &vmmKind,
	KindNetworkPool: &networkPoolKind,
	KindFabricVLAN:  &fabricVLANKind,
	KindIP:          &ipKind,
	KindAggregation: &aggregationKind,
	KindRouter:      &routerKind,
	KindMigration:   &migrationKind,
	KindTask:        &taskKind,
	KindSetting:     &settingKind,
	KindToken:       &tokenKind,
	KindRevocation:  &revocationKind,
	KindGrant:       &grantKind,
	KindTicket:      &ticketKind,
	KindAuthority:   &authorityKind,
	KindCertificate: &certificateKind,
}

// kind is a row of the table: all about a kind that needs no state.
type kind struct {
	Description
	// fields are in the order of the codec.
	fields fieldTable
	scope  scopeTable // nil: objects of the kind belong to no scope, or to several
	late   lateTable  // nil: all fields are of the first version
	// docs say of each field what people are told; FieldDocs has them with what follows.
	docs []FieldDoc
}

// written returns how many fields of an object of the kind, which has no other, are encoded.
func (k *kind) written(o Object) int {
	n := len(fieldNames[o.Kind()])
	if k.late != nil {
		unwritten, _ := k.late.unwritten(o)
		n -= unwritten
	}
	return n
}

// row returns the row of a kind, nil of one that this program does not know.
func (k Kind) row() *kind {
	if int(k) >= len(kinds) {
		return nil
	}
	return kinds[k]
}

// rowOf is row of an object's kind.
func rowOf(o Object) *kind {
	if _, is := o.(*Unknown); is {
		return nil
	}
	return o.Kind().row()
}

// Kinds returns all kinds that this program knows, by their numbers.
func Kinds() []Kind {
	all := make([]Kind, 0, len(kinds))
	for k, row := range kinds {
		if row != nil {
			all = append(all, Kind(k))
		}
	}
	return all
}

// Known reports whether this program knows the kind: whether NewObject makes one.
func (k Kind) Known() bool { return k.row() != nil }

// Describe returns what is known of a kind beyond its fields; the zero one of a
// kind that this program does not know. It is shared, and must not be changed.
func (k Kind) Describe() *Description {
	if row := k.row(); row != nil {
		return &row.Description
	}
	return &noDescription
}

var noDescription Description

// Description says of a kind what needs no state: its words, its id, what may not
// change, who may write it, and how the API and the program show it.
type Description struct {
	Name  string // as events, filters and files have it: nic_tag
	Noun  string // as messages have it (NAPI's words, where it has one): nic tag
	Title string // Noun as a sentence begins with it: NIC tag

	// IDField is the JSON name of the field that holds the id, or that messages
	// about the id name. IDForm says how the id is written.
	IDField string
	IDForm  IDForm
	// Immutable are the fields that no update may change, by JSON name. One that is
	// sent with the value that it has is accepted.
	Immutable []string

	// Drawn is the JSON name of a UUID besides the id that deciding chooses where a
	// client leaves it open.
	Drawn string
	// Required, References and Unique are checked before a kind's own rules, in this
	// order. Unique are fields, by JSON name, of which two objects of the kind may not have
	// the same value; the id needs no mention.
	Required   []Required
	References []Reference
	Unique     []string

	// Guarded: objects of the kind say who may do what, or what holds for all. Only
	// operators and servers write them.
	Guarded bool
	// Options are those that an operation may have.
	Options []Option
	// Final says why changes of the kind are never taken back; "": they can be.
	Final string
	// CN is what a compute node may write of the kind; nil: nothing.
	CN *Rights
	// TenantField is the JSON name of the field with the owner, or the owners, to
	// whose readers the API shows an object; "": to none.
	TenantField string

	// Path is that of the kind's list in the API, without the slash before it; "": the
	// kind has no path of its own form.
	Path string
	// Filters are the fields by which its lists can be filtered, sorted. The API has
	// more, of what follows from other objects.
	Filters []string
	// Command is that of the program; the zero one: there is none.
	Command Command
}

// DrawnField is the JSON name of the UUID that deciding chooses where a client leaves
// it open in a new object; "": there is none.
func (d *Description) DrawnField() string {
	if d.Drawn == "" && d.IDForm == IDUUID {
		return d.IDField
	}
	return d.Drawn
}

// IDForm is how the ids of a kind are written.
type IDForm uint8

// The forms of ids.
const (
	IDText IDForm = iota // any text
	IDUUID
	IDMAC
	IDPair // two parts with a colon between them: IPID, FabricVLANID
)

// Rights are what a compute node (CN) may do to its own objects of one kind.
type Rights struct {
	// Create and Update are the fields that it may set, by JSON name, sorted; none:
	// it may not do that at all. What follows from a field, such as the time of the
	// change, needs no mention.
	Create, Update []string
	// Late are further fields of Update, and of Create if it has any, each from the feature version on that brought it.
	Late   []string
	Delete bool
	// Why is for people who read the table.
	Why string
}

// Command is the program's command for the objects of a kind.
type Command struct {
	Name  string // rutter NAME list, get, create, update, delete
	Usage string
	// Columns are those of its tables.
	Columns []Column
	Example Example
}

// Column is a column of a table of objects: its title, and the JSON name of the
// field that it shows.
type Column struct{ Title, Field string }

// Example is what the help of a kind's command shows, each as it is typed.
type Example struct {
	ID     string // of an object
	Pick   string // a condition that selects some
	Create string // the fields of a new one
	Change string // fields of an update
}

// Required is a field that every object of a kind must have, by its JSON name. Remedy
// is what a client without it is told to do; "": to send it.
type Required struct{ Field, Remedy string }

// Reference is a field, by its JSON name, whose values are ids of objects of Kind: one
// id, or a list of them. A change that names an object that there is not is refused,
// and so is the deletion of an object that is named.
type Reference struct {
	Field string
	Kind  Kind
}
