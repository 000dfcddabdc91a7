package rules

import (
	"fmt"

	"rutter/log"
	"rutter/projections"
)

var certificateRules = hooks[*log.Certificate]{
	check: func(d *draft, before, c *log.Certificate, _ *log.Op) {
		if before == nil {
			checkCertificate(d, c)
		}
	},
	remove: keepRecord,
	follow: noteGood,
}

func checkCertificate(d *draft, c *log.Certificate) {
	if !isHex(c.Serial, maxSerial) || c.Serial[0] == '0' {
		d.bad("serial", "is not a number in hexadecimal", fmt.Sprintf("send at most %d digits, none of them a leading zero", maxSerial))
	}
	if c.Identity == "" || len(c.Identity) > projections.MaxNameBytes+16 {
		d.bad("identity", "is not one", "send cn:UUID, server:NAME, operator:NAME or reader:NAME")
	}
	if c.Authority != "clients" && c.Authority != "peers" {
		d.bad("authority", fmt.Sprintf("there is no authority \"%s\"", d.show(c.Authority)), "send clients or peers")
	}
	if !isKeyID(c.Issuer) || !isKeyID(c.Key) {
		d.bad("key", "key and issuer are SHA-256s of public keys, in hexadecimal", "let rutter cert do it")
	}
	if c.NotAfter <= c.NotBefore {
		d.bad("not_after", "it ends before it begins", "send what the certificate says")
	}
	if d.confined() && !d.refused() {
		checkFollows(d, c)
	}
}
