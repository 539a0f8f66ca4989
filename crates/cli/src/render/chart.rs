//! Line charts as SVG, plain enough to be read in any browser and in the docs.
//!
//! Not a crate: `plotters` 0.3 with its SVG back end alone would add four crates, 180 kB to the
//! binary and 4.5 s of processor time to a release build (measured), for the charts of one command.

use std::fmt::Write;

/// A chart of lines over one x axis.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// One axis; its range comes from the data.
pub(crate) struct Axis {
    pub(crate) label: String,
    /// Whether the scale is logarithmic; values are then above zero.
    pub(crate) logarithmic: bool,
}

impl Axis {
    fn scale(&self, values: impl Iterator<Item = f64>, start: f64, end: f64) -> Scale {
        let logarithmic = self.logarithmic;
        let place = move |value: f64| if logarithmic { value.log10() } else { value };
        Scale { logarithmic, ..Scale::over(values.map(place), start, end) }
    }
}

/// One line and its name.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) line: Line,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// Bold: the subject of the chart.
    Ours,
    /// Thin, each in its own colour.
    Theirs,
    /// Grey and dashed: a bound, not a result.
    Reference,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 80.0;
const BOTTOM: f64 = 60.0;
/// The least distance between two names in the margin.
const NAME_DISTANCE: f64 = 17.0;

const OURS: &str = "#c2410c";
const REFERENCE: &str = "#9ca3af";
/// Distinguishable with colour blindness.
const THEIRS: [&str; 7] =
    ["#1d4ed8", "#0d9488", "#7c3aed", "#ca8a04", "#64748b", "#be185d", "#4d7c0f"];

/// Maps values of one axis to places on the canvas.
struct Scale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    step: f64,
    logarithmic: bool,
}

impl Scale {
    /// A scale over all values, widened to whole steps.
    fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if high - low < 1e-9 {
            high = low + 1.0;
        }
        let step = tick_step(high - low);
        (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Scale { low, high, start, end, step, logarithmic: false }
    }

    fn place(&self, value: f64) -> f64 {
        self.on_scale(if self.logarithmic { value.log10() } else { value })
    }

    fn on_scale(&self, value: f64) -> f64 {
        self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let first = (self.low / self.step).ceil() as i64;
        let last = ((self.high + 1e-9) / self.step).floor() as i64;
        let step = self.step;
        (first..=last).map(move |tick| tick as f64 * step)
    }

    fn number(&self, value: f64) -> String {
        if self.logarithmic {
            return power_of_ten(value);
        }
        let decimals = (-self.step.log10()).ceil().max(0.0) as usize;
        format!("{value:.decimals$}")
    }
}

/// 10 to this power in few characters; empty between whole powers.
fn power_of_ten(power: f64) -> String {
    if power.fract().abs() > 1e-9 {
        return String::new();
    }
    let value = 10f64.powf(power);
    match power {
        6.0.. => format!("{:.0} M", value / 1e6),
        3.0..6.0 => format!("{:.0} k", value / 1e3),
        _ => format!("{value}"),
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives five to ten ticks.
fn tick_step(range: f64) -> f64 {
    let power = 10f64.powf((range / 6.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps.into_iter().find(|step| range / step <= 8.0).unwrap_or(10.0 * power)
}

impl Chart {
    /// The chart as an SVG document.
    pub(crate) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let x = self.x.scale(points().map(|(x, _)| *x), LEFT, WIDTH - RIGHT);
        let y = self.y.scale(points().map(|(_, y)| *y), HEIGHT - BOTTOM, TOP);
        let mut svg = String::new();
        self.frame(&mut svg);
        self.grid(&mut svg, &x, &y);
        // Ours last, so that it is on top.
        let colours = self.colours();
        for ours in [false, true] {
            for (series, colour) in self.series.iter().zip(&colours) {
                if (series.line == Line::Ours) == ours {
                    curve(&mut svg, series, colour, &x, &y);
                }
            }
        }
        self.names(&mut svg, &colours, &y);
        svg.push_str("</svg>\n");
        svg
    }

    fn frame(&self, svg: &mut String) {
        put(
            svg,
            format_args!(
                r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="13" fill="#374151" role="img" aria-label="{title}">
<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>
<text x="{LEFT}" y="34" font-size="18" font-weight="600" fill="#111827">{title}</text>
<text x="{LEFT}" y="55" fill="#6b7280">{subtitle}</text>"##,
                title = escaped(&self.title),
                subtitle = escaped(&self.subtitle),
            ),
        );
    }

    fn grid(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in y.ticks() {
            let place = y.on_scale(tick);
            put(
                svg,
                format_args!(
                    r##"<line x1="{LEFT}" y1="{place:.1}" x2="{right}" y2="{place:.1}" stroke="#e5e7eb"/><text x="{at}" y="{text:.1}" text-anchor="end">{number}</text>"##,
                    at = LEFT - 10.0,
                    text = place + 4.5,
                    number = y.number(tick),
                ),
            );
        }
        for tick in x.ticks() {
            let place = x.on_scale(tick);
            put(
                svg,
                format_args!(
                    r##"<line x1="{place:.1}" y1="{TOP}" x2="{place:.1}" y2="{bottom}" stroke="#f3f4f6"/><text x="{place:.1}" y="{text}" text-anchor="middle">{number}</text>"##,
                    text = bottom + 20.0,
                    number = x.number(tick),
                ),
            );
        }
        put(
            svg,
            format_args!(
                r##"<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#9ca3af"/>
<text x="{middle}" y="{below}" text-anchor="middle" fill="#6b7280">{x_label}</text>
<text transform="translate(20 {centre}) rotate(-90)" text-anchor="middle" fill="#6b7280">{y_label}</text>"##,
                middle = (LEFT + right) / 2.0,
                below = HEIGHT - 16.0,
                centre = (TOP + bottom) / 2.0,
                x_label = escaped(&self.x.label),
                y_label = escaped(&self.y.label),
            ),
        );
    }

    fn colours(&self) -> Vec<&'static str> {
        let mut others = THEIRS.iter().cycle();
        let colour = |series: &Series| match series.line {
            Line::Ours => OURS,
            Line::Reference => REFERENCE,
            Line::Theirs => others.next().copied().unwrap_or(REFERENCE),
        };
        self.series.iter().map(colour).collect()
    }

    /// Writes each line's name beside its end, as near to it as the others allow.
    fn names(&self, svg: &mut String, colours: &[&str], y: &Scale) {
        let ends = self.series.iter().zip(colours).filter_map(|(series, colour)| {
            let (_, last) = series.points.last()?;
            Some((y.place(*last), series, *colour))
        });
        let mut ends: Vec<(f64, &Series, &str)> = ends.collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut free = TOP;
        for (place, series, colour) in ends {
            let at = place.max(free);
            free = at + NAME_DISTANCE;
            let weight = if series.line == Line::Ours { "700" } else { "400" };
            put(
                svg,
                format_args!(
                    r##"<path d="M{from} {place:.1}L{to} {at:.1}" stroke="{colour}" stroke-opacity="0.5"/><text x="{x}" y="{text:.1}" fill="{colour}" font-weight="{weight}">{name}</text>"##,
                    from = WIDTH - RIGHT + 3.0,
                    to = WIDTH - RIGHT + 16.0,
                    x = WIDTH - RIGHT + 21.0,
                    text = at + 4.5,
                    name = escaped(&series.name),
                ),
            );
        }
    }
}

fn curve(svg: &mut String, series: &Series, colour: &str, x: &Scale, y: &Scale) {
    let mut path = String::new();
    for (index, (at_x, at_y)) in series.points.iter().enumerate() {
        let stroke = if index == 0 { 'M' } else { 'L' };
        put(&mut path, format_args!("{stroke}{:.1} {:.1}", x.place(*at_x), y.place(*at_y)));
    }
    let style = match series.line {
        Line::Ours => r#"stroke-width="3.2""#,
        Line::Theirs => r#"stroke-width="1.8""#,
        Line::Reference => r#"stroke-width="1.5" stroke-dasharray="5 5""#,
    };
    put(
        svg,
        format_args!(
            r#"<path d="{}" fill="none" stroke="{colour}" stroke-linejoin="round" stroke-linecap="round" {style}/>"#,
            path.replace('\n', "")
        ),
    );
}

/// Appends one line.
fn put(svg: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(svg, "{line}").expect("writing to a string cannot fail");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            title: "A < B & \"C\"".into(),
            subtitle: String::new(),
            x: Axis { label: "x".into(), logarithmic: false },
            y: Axis { label: "y".into(), logarithmic: false },
            series: vec![
                Series { name: "ours".into(), line: Line::Ours, points: points.clone() },
                Series { name: "theirs".into(), line: Line::Theirs, points },
            ],
        }
    }

    #[test]
    fn text_is_escaped() {
        let svg = chart(vec![(0.0, 1.0), (1.0, 2.0)]).svg();
        assert!(svg.contains("A &lt; B &amp; &quot;C&quot;") && !svg.contains("A < B"));
    }

    #[test]
    fn no_points_one_point_and_equal_points_can_be_drawn() {
        for points in [vec![], vec![(1.0, 1.0)], vec![(1.0, 5.0), (2.0, 5.0)]] {
            let svg = chart(points).svg();
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        let scale = Scale::over([78.3, 96.1].into_iter(), 0.0, 1.0);
        let ticks: Vec<f64> = scale.ticks().collect();
        assert!(scale.low <= 78.3 && scale.high >= 96.1);
        assert!((4..=10).contains(&ticks.len()), "{ticks:?}");
        assert!(ticks.iter().all(|tick| (tick / scale.step).fract().abs() < 1e-9));
    }

    #[test]
    fn a_logarithmic_axis_is_marked_at_powers_of_ten() {
        let mut chart = chart(vec![(20.0, 1.0), (3_000_000.0, 2.0)]);
        chart.x.logarithmic = true;
        let svg = chart.svg();
        for mark in [">10<", ">100<", ">1 k<", ">10 k<", ">100 k<", ">1 M<", ">10 M<"] {
            assert!(svg.contains(mark), "{mark} in {svg}");
        }
    }

    #[test]
    fn names_never_overlap() {
        let svg = chart(vec![(0.0, 1.0), (1.0, 2.0)]).svg();
        let place = |name: &str| -> f64 {
            let before = svg.split(&format!(">{name}<")).next().expect("a first part");
            let y = before.rsplit(" y=\"").next().expect("a place").split('"').next();
            y.expect("a number").parse().expect("a number")
        };
        assert!((place("ours") - place("theirs")).abs() >= NAME_DISTANCE - 0.2);
    }
}
