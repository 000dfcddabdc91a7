package servercmd

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/allow"
	"rutter/api/triton/gateway"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/serve"
	"rutter/cmd/rutter/serviceaddr"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// minDiskPatience bounds --disk-patience from below. It is twice the time after which a
// leader gives up leadership, so that another server leads by then.
const minDiskPatience = 2 * time.Second

// lowWaterOf reads --disk-low-water; 0 is the default.
func lowWaterOf(text string) (int64, error) {
	if text == "auto" {
		return 0, nil
	}
	size, err := output.ParseSize(text)
	if err != nil || size == 0 || size > 1<<50 {
		return 0, term.Usagef("--disk-low-water %q: want a size, as in 1GiB, or auto", text)
	}
	return int64(size), nil
}

// tritonFlags are those of `rutter server` for Triton's programs.
func tritonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "napi", EnvVars: []string{"RUTTER_NAPI"}, Value: "off", Usage: "plain `ADDRESS` for clients of NAPI, or off; see --triton-allow"},
		&cli.StringFlag{Name: "cnapi", EnvVars: []string{"RUTTER_CNAPI"}, Value: "off", Usage: "plain `ADDRESS` for clients of CNAPI, or off"},
		&cli.StringFlag{Name: "vmapi", EnvVars: []string{"RUTTER_VMAPI"}, Value: "off", Usage: "plain `ADDRESS` for clients of VMAPI, or off"},
		&cli.StringFlag{Name: "vmapi-behind", EnvVars: []string{"RUTTER_VMAPI_BEHIND"}, Usage: "`URL` of Triton's old VMAPI, as in http://10.99.99.28: --vmapi hands on to it what the log does not have"},
		&cli.StringFlag{Name: "cnapi-behind", EnvVars: []string{"RUTTER_CNAPI_BEHIND"}, Usage: "`URL` of Triton's old CNAPI, as in http://10.99.99.22: --cnapi hands on to it what the log does not have, and calls about compute nodes without Rutter's agent"},
		&cli.StringFlag{Name: "placement", EnvVars: []string{"RUTTER_PLACEMENT"}, Value: "ours", Usage: "with --cnapi-behind: `WHO` answers /allocate, /capacity and the waitlist, which share one store: ours or behind; the same on each server"},
		&cli.StringSliceFlag{Name: "triton-allow", EnvVars: []string{"RUTTER_TRITON_ALLOW"}, Usage: "who may use those three: `CIDR=read|write|programs`, may be given several times; the narrowest network decides; programs is write with what chooses a program on a compute node (init of a VM); this machine alone if none is given"},
		&cli.StringFlag{Name: "triton-admin", EnvVars: []string{"RUTTER_TRITON_ADMIN"}, Usage: "`UUID` of Triton's admin owner, who may provision on every network"},
		&cli.StringSliceFlag{Name: "service-address", EnvVars: []string{"RUTTER_SERVICE_ADDRESS"}, Usage: "`ADDRESS/PREFIX@LINK` that the servers hand among themselves: the leader has it on that link of its machine, for clients that dial one address; --listen, --napi, --cnapi, --vmapi and --svp may name it; the same address on each server; may be given several times"},
		&cli.StringFlag{Name: "overlay-tag", EnvVars: []string{"RUTTER_OVERLAY_TAG"}, Value: "sdc_overlay", Usage: "`NAME` of the NIC tag that fabric networks made through NAPI are on"},
		&cli.UintFlag{Name: "overlay-mtu", EnvVars: []string{"RUTTER_OVERLAY_MTU"}, Value: serve.DefaultOverlayMTU, Usage: "MTU of fabric networks made through NAPI that name none, in `BYTES` from 576 to 9000 (default_overlay_mtu of Triton's fabric_cfg)"},
	}
}

// tritonConfigOf reads the flags. It refuses a listener by address that accepts no
// address, and a list that cannot be parsed.
func tritonConfigOf(c *cli.Context) (cfg serve.TritonOptions, err error) {
	mtu := c.Uint("overlay-mtu")
	if mtu < serve.MinOverlayMTU || mtu > serve.MaxOverlayMTU {
		return cfg, term.Usagef("--overlay-mtu %d: want %d to %d bytes", mtu, serve.MinOverlayMTU, serve.MaxOverlayMTU)
	}
	cfg = serve.TritonOptions{Addresses: make(map[string]string), OverlayTag: c.String("overlay-tag"), OverlayMTU: uint32(mtu)}
	if cfg.Allow, err = allow.Parse(c.StringSlice("triton-allow")); err != nil {
		return cfg, term.Usagef("--triton-allow %w", err)
	}
	for _, name := range serve.TritonSurfaces {
		address := c.String(name)
		if address == "off" || address == "" {
			continue
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return cfg, term.Usagef("--%s %q: want HOST:PORT, as in 10.99.99.8:80, or off", name, address)
		}
		if !term.IsLoopback(host) && cfg.Allow.Len() == 0 {
			return cfg, term.Usagef("--%s %s is for other machines, and nobody is let in: name them with --triton-allow CIDR=read or CIDR=write", name, address)
		}
		cfg.Addresses[name] = address
	}
	if cfg.Allow.Len() == 0 {
		cfg.Allow = allow.Loopback()
	}
	if err := behindOf(c, &cfg); err != nil {
		return cfg, err
	}
	if text := c.String("triton-admin"); text != "" {
		if cfg.Admin, err = log.ParseUUID(text); err != nil {
			return cfg, term.Usagef("--triton-admin: %w", err)
		}
	}
	return cfg, nil
}

// behindOf reads the URLs of the old services.
func behindOf(c *cli.Context, cfg *serve.TritonOptions) error {
	cfg.Behind = make(map[string]string)
	for _, name := range []string{gateway.VMAPI, gateway.CNAPI} {
		text := c.String(name + "-behind")
		if text == "" {
			continue
		}
		u, err := gateway.ParseBehind(text)
		if err != nil {
			return term.Usagef("--%s-behind %w", name, err)
		}
		if cfg.Addresses[name] == "" {
			return term.Usagef("--%s-behind %s needs a listener in front of it: give --%s ADDRESS too", name, text, name)
		}
		for surface, address := range cfg.Addresses {
			if u.Host == address || u.Port() == "" && u.Host+":80" == address {
				return term.Usagef("--%s-behind %s is this server's own --%s: give the address of the old service", name, text, surface)
			}
		}
		cfg.Behind[name] = u.String()
	}
	switch who := c.String("placement"); {
	case who != "ours" && who != "behind":
		return term.Usagef("--placement %q: want ours or behind", who)
	case who == "behind" && cfg.Behind[gateway.CNAPI] == "":
		return term.Usagef("--placement behind: there is no old CNAPI to do it: give --cnapi-behind URL too")
	default:
		cfg.PlacementBehind = who == "behind"
	}
	return nil
}

// serviceAddressesOf reads --service-address.
func serviceAddressesOf(c *cli.Context) ([]serviceaddr.Address, error) {
	all, err := serviceaddr.ParseAll(c.StringSlice("service-address"))
	if err != nil {
		return nil, term.Usagef("--service-address %w", err)
	}
	for _, name := range []string{"raft", "advertise"} {
		host, _, _ := net.SplitHostPort(c.String(name))
		ip, err := netip.ParseAddr(host)
		if err == nil && slices.ContainsFunc(all, func(a serviceaddr.Address) bool { return a.IP() == ip }) {
			return nil, term.Usagef("--%s %s is a service address, which moves between servers: name an address that this server always has", name, host)
		}
	}
	return all, nil
}

// networksOf reads --cn-network.
func networksOf(texts []string) (networks []netip.Prefix, err error) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() || p.Addr().IsMulticast() {
			return nil, term.Usagef("--cn-network %q: want a network without host bits, as in 10.99.99.0/24, or an address, as in 10.99.99.7/32", text)
		}
		networks = append(networks, p)
	}
	return networks, nil
}
