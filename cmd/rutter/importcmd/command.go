package importcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
)

// Command is `rutter import`.
func Command() *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "bring what another system knows of the network into Rutter", Category: "Objects",
		Description: term.Examples("rutter import napi http://napi.my.domain --dry-run", "rutter import napi http://napi.my.domain"),
		Subcommands: []*cli.Command{{
			Name: "napi", Usage: "bring NIC tags, networks, pools, fabrics, NICs, addresses, aggregations and routers of Triton's NAPI",
			ArgsUsage: "URL|FOLDER [URL|FOLDER …]", Action: importNAPI, Description: napiText,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "say what would be done, and do nothing"},
				&cli.BoolFlag{Name: "all", Usage: "show every step and every problem, not only the first of each sort"},
				term.ServersFlag(), output.Flag(),
			},
		}},
	}
}

// napiText is the help of `rutter import napi`.
var napiText = strings.TrimSpace(`
A URL is that of a running NAPI, or of a server of Rutter with /napi behind. It
is read in pages, with GET alone. A folder has files of JSON, each a list or
objects one after another, as sdc-napi … -j prints them: nic_tags.json,
networks.json, network_pools.json, vlans.json, nics.json, aggregations.json,
ips.json, routers.json; or dumps of moray's buckets, lines of {bucket, key,
value, _etag}, of napi_nic_tags, napi_networks, napi_nics, napi_fabrics,
napi_fabric_vlans, napi_network_pools, napi_aggregations and napi_ips_…, whatever
the file is called. Of a bucket's fields those are read that NAPI's answers have,
under those names or the buckets' own; others are named and left out.

UUIDs, MACs, addresses, owners, states, vnets and a NIC's times stay as they are.
Nothing is deleted. What is there already is changed where the source says
otherwise, so a second run changes nothing, and one that was interrupted goes on
when it is run again. Each step is first tried here by the rules of the servers:
what they would refuse is named, with the field and the remedy, and left out.

A network's name is its own in the cloud, that of a fabric network among its
owner's. Of several with one name, one that is here already keeps it, else the one
with the lowest UUID is brought over. The others are named and left out, with what
lies on them: rename them in NAPI, and run again. gateway_provisioned of a fabric
network is not copied: it is true here while a NIC has the gateway's address, and
where NAPI says otherwise, the network is named.

Rows of portolan_vnet_mac_ip and portolan_underlay_mappings are compared with
what Rutter answers from NICs and networks, and the differences listed: mappings
are not kept, so none are brought over.

Exit codes: 0 all is here; 3 something is left out.

`) + "\n\n" + term.Examples(
	"rutter import napi http://napi.my.domain --dry-run",
	"rutter import napi /var/tmp/napi-dump --dry-run -o ndjson | jq 'select(.sort == \"problem\").of'",
	"rutter import napi http://napi.my.domain /var/tmp/portolan-dump   # compares portolan's mappings as well",
)

func importNAPI(c *cli.Context) error {
	if c.NArg() == 0 {
		return term.Usagef("want the URL of a NAPI, or a folder of its objects, as in http://napi.my.domain")
	}
	for _, source := range c.Args().Slice() {
		if _, err := os.Stat(source); err != nil && !isURL(source) {
			return term.Usagef("%s: want a URL that begins with http:// or https://, or a folder: %w", source, err)
		}
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	defer api.Close()
	tell := progressTo(c.App.ErrWriter, time.Now)
	in := newInstallation()
	for _, source := range c.Args().Slice() {
		if err := in.read(c.Context, source, tell); err != nil {
			return err
		}
	}
	output.Printf(c.App.ErrWriter, "%d objects were read\n", in.count)
	state, seq, err := stateOf(c.Context, api)
	if err != nil {
		return err
	}
	p := makePlan(in, state, seq)
	r := newReport(p, c.Bool("dry-run"))
	var failed error
	if !r.DryRun {
		failed = execute(c.Context, api, p, r, tell)
	}
	if err := r.show(c.App.Writer, c.String("output"), c.Bool("all")); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	if n := r.refusedCount(); n > 0 {
		return cli.Exit(fmt.Sprintf("%d objects of the source are left out", n), exitSkipped)
	}
	return nil
}

// exitSkipped is the exit code of an import that skipped objects, because the servers
// would refuse them.
const exitSkipped = 3

func isURL(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}

// read adds the objects of a source.
func (in *installation) read(ctx context.Context, source string, tell progress) error {
	if !isURL(source) {
		return in.readPath(ctx, source, tell)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	return in.readNAPI(ctx, source, &http.Client{Transport: transport}, tell)
}

// stateOf reads the whole state of the servers.
func stateOf(ctx context.Context, api *client.Client) (*projections.State, log.Seq, error) {
	answer, err := api.State(ctx, nil)
	if err != nil {
		return nil, 0, err
	}
	state := projections.NewPart()
	for i, o := range answer.Objects {
		if err := state.Load(projections.Record{Object: o.Object, Revision: o.Revision, Seq: o.Seq}); err != nil {
			return nil, 0, err
		}
		answer.Objects[i] = client.StateObject{} // free the memory: the state has the object
	}
	return state, answer.Seq, nil
}

// execute writes the steps of a plan.
func execute(ctx context.Context, api *client.Client, p *plan, r *report, tell progress) error {
	stream := api.NewStream()
	ctx, cancel := context.WithCancel(ctx)
	g := new(errgroup.Group)
	g.Go(func() error { return stream.Run(ctx) })
	w := &writer{to: stream, newID: client.NewChangeID, tell: tell}
	err := w.write(ctx, p.steps)
	cancel()
	if ended := g.Wait(); ended != nil && !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	r.Written, r.Events = w.done, w.events
	r.Problems = append(r.Problems, w.problems...)
	return err
}

// show prints a report as -o says.
func (r *report) show(w io.Writer, format string, all bool) error {
	switch format {
	case "json":
		return output.Indented(w, r)
	case "ndjson":
		return r.lines(w)
	}
	r.print(w, all)
	return nil
}
