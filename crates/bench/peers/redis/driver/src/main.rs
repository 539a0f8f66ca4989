// Raw RESP driver. usage: redis-drive PORT CLIENTS PIPELINE ACCOUNTS SECONDS SCRIPTDIR
// Each client: PIPELINE reserves in one write, read all replies, then PIPELINE settles, ...
// One thread drives all the clients of its share (2 threads), blocking sockets, so that redis gets a core.
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};
struct C {
    w: TcpStream,
    r: BufReader<TcpStream>,
}
impl C {
    fn new(p: u16) -> C {
        let s = TcpStream::connect(("127.0.0.1", p)).unwrap();
        s.set_nodelay(true).unwrap();
        C { w: s.try_clone().unwrap(), r: BufReader::with_capacity(1 << 16, s) }
    }
    fn reply(&mut self) -> Result<String, String> {
        let mut l = String::new();
        self.r.read_line(&mut l).unwrap();
        let l = l.trim_end();
        match l.as_bytes()[0] {
            b':' | b'+' => Ok(l[1..].to_string()),
            b'-' => Err(l.to_string()),
            b'$' => {
                let n: i64 = l[1..].parse().unwrap();
                if n < 0 {
                    return Ok(String::new());
                }
                let mut b = vec![0; n as usize + 2];
                self.r.read_exact(&mut b).unwrap();
                b.truncate(n as usize);
                Ok(String::from_utf8(b).unwrap())
            }
            _ => panic!("{l}"),
        }
    }
}
fn cmd(out: &mut Vec<u8>, a: &[&str]) {
    write!(out, "*{}\r\n", a.len()).unwrap();
    for s in a {
        write!(out, "${}\r\n{}\r\n", s.len(), s).unwrap();
    }
}
fn rng(s: &mut u64) -> u64 {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    *s
}
fn keys(a: u64) -> [String; 6] {
    ["g", "r", "h", "k", "s", "e"].map(|p| format!("{p}:{{{a}}}"))
}
fn main() {
    let a: Vec<String> = env::args().collect();
    let (port, clients, pipe, accts, secs): (u16, usize, usize, u64, u64) = (
        a[1].parse().unwrap(),
        a[2].parse().unwrap(),
        a[3].parse().unwrap(),
        a[4].parse().unwrap(),
        a[5].parse().unwrap(),
    );
    let mut c = C::new(port);
    let mut o = vec![];
    let load = |c: &mut C, f: &str| {
        let mut o = vec![];
        cmd(&mut o, &["SCRIPT", "LOAD", &fs::read_to_string(format!("{}/{f}", a[6])).unwrap()]);
        c.w.write_all(&o).unwrap();
        c.reply().unwrap()
    };
    let (sr, ss) = (load(&mut c, "reserve.lua"), load(&mut c, "settle.lua"));
    let mut n = 0;
    for ac in 1..=accts {
        let k = keys(ac);
        for g in 1..=3u64 {
            let e = (1_900_000_000 + (ac * 7 + g * 13) % 300 * 86400).to_string();
            let g = g.to_string();
            cmd(&mut o, &["ZADD", &k[0], &e, &g]);
            cmd(&mut o, &["HSET", &k[1], &g, "1000000000000"]);
            n += 2;
        }
        if n > 600 || ac == accts {
            c.w.write_all(&o).unwrap();
            o.clear();
            for _ in 0..n {
                c.reply().unwrap();
            }
            n = 0;
        }
    }
    let nt = clients.min(2);
    let stop = Instant::now() + Duration::from_secs(secs);
    let t0 = Instant::now();
    let hs: Vec<_> = (0..nt)
        .map(|t| {
            let (sr, ss) = (sr.clone(), ss.clone());
            let my = clients / nt + usize::from(t < clients % nt);
            thread::spawn(move || {
                let mut cs: Vec<C> = (0..my).map(|_| C::new(port)).collect();
                let mut s = 0x9E3779B97F4A7C15u64
                    ^ ((t as u64 + 1) << 33)
                    ^ std::process::id() as u64
                    ^ (Instant::now().elapsed().as_nanos() as u64);
                let (mut ops, mut lat, mut err) = (0u64, Vec::new(), 0u64);
                let mut o = vec![];
                while Instant::now() < stop {
                    let mut st: Vec<Vec<(u64, u64, u64, String)>> = Vec::new();
                    let mut ts = Vec::new();
                    for c in cs.iter_mut() {
                        o.clear();
                        let mut v = vec![];
                        for _ in 0..pipe {
                            let ac = 1 + rng(&mut s) % accts;
                            let amt = 1 + rng(&mut s) % 1000;
                            let key = rng(&mut s);
                            let k = keys(ac);
                            cmd(
                                &mut o,
                                &[
                                    "EVALSHA",
                                    &sr,
                                    "6",
                                    &k[0],
                                    &k[1],
                                    &k[2],
                                    &k[3],
                                    &k[4],
                                    &k[5],
                                    &amt.to_string(),
                                    &format!("r{key}"),
                                    "1800000000",
                                ],
                            );
                            v.push((ac, amt, key, String::new()));
                        }
                        ts.push(Instant::now());
                        c.w.write_all(&o).unwrap();
                        st.push(v);
                    }
                    for (i, c) in cs.iter_mut().enumerate() {
                        for x in st[i].iter_mut() {
                            match c.reply() {
                                Ok(h) => x.3 = h,
                                Err(e) => {
                                    err += 1;
                                    if err == 1 {
                                        eprintln!("{e}")
                                    }
                                }
                            }
                            ops += 1;
                        }
                        lat.push(ts[i].elapsed().as_nanos() as u64);
                    }
                    ts.clear();
                    for (i, c) in cs.iter_mut().enumerate() {
                        o.clear();
                        for x in &st[i] {
                            let k = keys(x.0);
                            cmd(
                                &mut o,
                                &[
                                    "EVALSHA",
                                    &ss,
                                    "6",
                                    &k[0],
                                    &k[1],
                                    &k[2],
                                    &k[3],
                                    &k[4],
                                    &k[5],
                                    &x.3,
                                    &(x.1 / 2).to_string(),
                                    &format!("s{}", x.2),
                                ],
                            );
                        }
                        ts.push(Instant::now());
                        c.w.write_all(&o).unwrap();
                    }
                    for (i, c) in cs.iter_mut().enumerate() {
                        for _ in 0..pipe {
                            if let Err(e) = c.reply() {
                                err += 1;
                                if err == 1 {
                                    eprintln!("{e}")
                                }
                            }
                            ops += 1;
                        }
                        lat.push(ts[i].elapsed().as_nanos() as u64);
                    }
                }
                (ops, lat, err)
            })
        })
        .collect();
    let (mut ops, mut lat, mut err) = (0, vec![], 0);
    for h in hs {
        let (o, l, e) = h.join().unwrap();
        ops += o;
        lat.extend(l);
        err += e;
    }
    let el = t0.elapsed().as_secs_f64();
    lat.sort();
    let q = |p: f64| lat[((lat.len() - 1) as f64 * p) as usize] as f64 / 1e6;
    println!("clients={clients} pipeline={pipe} accts={accts} ops={ops} errors={err} batch p50={:.2}ms p99={:.2}ms ops/s={:.0} pairs/s={:.0}", q(0.5), q(0.99), ops as f64 / el, ops as f64 / el / 2.0);
}
