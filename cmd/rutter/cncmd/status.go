package cncmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "what the servers know of one compute node, and with --ask what it says of itself", ArgsUsage: "UUID", Action: cnStatus,
		Flags: []cli.Flag{
			term.ServersFlag(), output.Flag(),
			&cli.BoolFlag{Name: "ask", Usage: "ask its agent, by its session: kernel, ports and their rules, drops, certificate, version"},
			&cli.StringFlag{Name: "nic", Usage: "ask what its kernel has of the NIC with this `MAC`: links, addresses, rules, drops"},
		},
		Description: term.Examples("rutter cn status 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01", "rutter cn status cn-7 --ask", "rutter cn status cn-7 --nic 90:b8:d0:52:f0:01 -o json") +
			"\n\nA node that does not answer, or answers with what is no answer, is named, and the exit code stays 0.",
	}
}

func cnStatus(c *cli.Context) error {
	if c.NArg() != 1 {
		return term.Usagef("want the UUID of one compute node")
	}
	query := url.Values{}
	if c.Bool("ask") {
		query.Set("ask", "1")
	}
	if text := c.String("nic"); text != "" {
		mac, err := log.ParseMAC(text)
		if err != nil {
			return term.Usagef("--nic: %v", err)
		}
		query.Set("nic", mac.String())
	}
	cn, err := named.UUID(c, log.KindServer, c.Args().First())
	if err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	status, err := api.Get(c.Context, "/cns/"+cn.String()+"/status", query)
	if err != nil {
		return err
	}
	return output.One(c, status, func(out io.Writer) { printTree(out, "", map[string]any(status)) })
}

// printTree prints an answer with a line for each value: lists of texts one below the other.
func printTree(out io.Writer, indent string, object map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch v := object[name].(type) {
		case map[string]any:
			output.Printf(out, "%s%s\n", indent, output.Text(name))
			printTree(out, indent+"  ", v)
		case []any:
			output.Printf(out, "%s%s %d\n", indent, output.Text(name), len(v))
			for _, item := range v {
				if inner, is := item.(map[string]any); is {
					printTree(out, indent+"  ", inner)
					output.Printf(out, "%s  -\n", indent)
				} else {
					output.Printf(out, "%s  %s\n", indent, output.Text(item))
				}
			}
		default:
			output.Printf(out, "%s%s %s\n", indent, output.Text(name), output.Text(v))
		}
	}
}

func vnetCommand() *cli.Command {
	return &cli.Command{
		Name: "vnet", Usage: "the compute nodes of a vnet, and how far each is with its links", ArgsUsage: "VNET", Action: cnVNet,
		Flags: []cli.Flag{
			term.ServersFlag(), output.Flag(),
			&cli.IntFlag{Name: "limit", Value: 1000, Usage: "at most `N` nodes, those that need a look first"},
		},
		Description: term.Examples("rutter cn vnet 4385813", "rutter cn vnet 4385813 -o json") +
			"\n\nLinks are programmed, behind (the entry is not in the kernel yet), failing (it cannot be made), idle (the VM is not to\nrun) or unknown (the node has no session).",
	}
}

// vnetLinks counts links by state.
type vnetLinks struct {
	Programmed int `json:"programmed"`
	Behind     int `json:"behind"`
	Failing    int `json:"failing"`
	Idle       int `json:"idle"`
	Unknown    int `json:"unknown"`
}

func (l vnetLinks) String() string {
	var parts []string
	for _, one := range []struct {
		name string
		n    int
	}{{"programmed", l.Programmed}, {"behind", l.Behind}, {"failing", l.Failing}, {"idle", l.Idle}, {"unknown", l.Unknown}} {
		if one.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", one.n, one.name))
		}
	}
	return strings.Join(parts, ", ")
}

// vnet is the part of GET /vnets/ID that is printed as a table.
type vnet struct {
	Networks []struct {
		UUID   log.UUID `json:"uuid"`
		Name   string   `json:"name"`
		Subnet string   `json:"subnet"`
		VLAN   uint32   `json:"vlan_id"`
		NICs   int      `json:"nics"`
	} `json:"networks"`
	Links vnetLinks `json:"links"`
	NICs  int       `json:"nics"`
	Total int       `json:"cns_total"`
	CNs   []struct {
		CN       log.UUID  `json:"cn_uuid"`
		Hostname string    `json:"hostname"`
		State    string    `json:"state"`
		Why      string    `json:"why"`
		Underlay string    `json:"underlay_ip"`
		BehindMS int64     `json:"lag_ms"`
		Links    vnetLinks `json:"links"`
	} `json:"cns"`
}

func cnVNet(c *cli.Context) error {
	if c.NArg() != 1 {
		return term.Usagef("want the number of one vnet")
	}
	id, err := strconv.ParseUint(c.Args().First(), 10, 24)
	if err != nil {
		return term.Usagef("%q is no vnet: want its number, as rutter network list -o json shows it in vnet_id", c.Args().First())
	}
	if c.Int("limit") < 1 {
		return term.Usagef("--limit %d: want 1 or more", c.Int("limit"))
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	found, err := vnetOf(c.Context, api, id, c.Int("limit"))
	if err != nil {
		return err
	}
	return output.One(c, found.raw, func(out io.Writer) {
		output.Printf(out, "vnet %d: %d NICs on %d compute nodes; links: %s\n", id, found.NICs, found.Total, output.Text(found.Links.String()))
		w := output.Aligned(out)
		output.Print(w, "CN\tHOSTNAME\tSTATE\tLINKS\tLAG\tUNDERLAY\tWHY\n")
		for i := range found.CNs {
			n := &found.CNs[i]
			output.Printf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.CN, output.Text(n.Hostname), output.Text(n.State), output.Text(n.Links.String()), time.Duration(n.BehindMS)*time.Millisecond, output.Text(n.Underlay), output.Text(n.Why))
		}
		_ = w.Flush() // the terminal is gone
		w = output.Aligned(out)
		output.Print(w, "\nNETWORK\tNAME\tSUBNET\tVLAN\tNICS\n")
		for _, n := range found.Networks {
			output.Printf(w, "%s\t%s\t%s\t%d\t%d\n", n.UUID, output.Text(n.Name), output.Text(n.Subnet), n.VLAN, n.NICs)
		}
		_ = w.Flush()
	})
}

type foundVNet struct {
	vnet
	raw client.Object
}

func vnetOf(ctx context.Context, api *client.Client, id uint64, limit int) (found foundVNet, err error) {
	if found.raw, err = api.Get(ctx, fmt.Sprintf("/vnets/%d", id), url.Values{"limit": {strconv.Itoa(limit)}}); err != nil {
		return found, err
	}
	text, err := json.Marshal(found.raw)
	if err != nil {
		return found, err
	}
	return found, json.Unmarshal(text, &found.vnet)
}
