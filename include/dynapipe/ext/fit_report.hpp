#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/cost/fitted.hpp>
#include <dynapipe/cost/profile.hpp>
#include <dynapipe/cost/profile_sound.hpp>

/// Fits as text and as a picture. Needs fmt.

namespace dynapipe {

/// The curves of `costs` as a table, a row for each kind, recomputation and amount: coefficients, and relative errors
/// in sample and with each length left out; then where they were seen, and the links.
[[nodiscard]] inline std::string fit_table(const fitted_costs& costs) {
  const auto real = [](std::int64_t fixed) {
    return static_cast<double>(fixed) / static_cast<double>(std::int64_t{1} << curve_shift);
  };
  const auto percent = [](double share) { return share < 0 ? std::string{"-"} : fmt::format("{:.2f}", 100 * share); };
  std::string out =
      fmt::format("{}, {}, tensor parallel {}\n\n", costs.device, to_string(costs.type), costs.tensor_parallel);
  auto at = std::back_inserter(out);
  fmt::format_to(at, "{:<13} {:<9} {:<19} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>6} {:>6}\n", "layer",
                 "recompute", "amount", "points", "floor", "constant", "token", "pair", "cube", "mean%", "p95%", "out%",
                 "o.p95%");
  for (const auto& [kind, kind_name] : layer_kind_names)
    for (const auto& [recompute, recompute_name] : recompute_names)
      for (const auto& [amount, amount_name] : cost_amount_names) {
        const fitted_curve& f = costs.of(kind, recompute).of(amount);
        if (!f.known) continue;
        const cost_curve& c = f.curve;
        fmt::format_to(at, "{:<13} {:<9} {:<19} {:>6} {:>9} {:>9} {:>9.4g} {:>9.3g} {:>9.2g} {:>6} {:>6} {:>6} {:>6}\n",
                       kind_name, recompute_name, amount_name, f.error.points, c.floor, c.constant, real(c.queries),
                       real(c.self_pairs), real(c.self_cubes), percent(f.error.mean), percent(f.error.p95),
                       percent(f.error.out_mean), percent(f.error.out_p95));
        if (kind == layer_kind::cross_decoder)
          fmt::format_to(at, "{:<13} {:<9} {:<19} {:>26} {:>9.4g} {:>9.3g} {:>9.2g}\n", "", "", "  with the input", "",
                         real(c.keys), real(c.cross_pairs), real(c.cross_cubes));
      }
  out +=
      "\nfloor, constant in ns or bytes; token, pair (of query and key) and cube (pair x length) in ns or bytes each;"
      "\nerrors relative, in percent: in sample, and (out) of lengths that were left out\n\n";
  for (const auto& [kind, kind_name] : layer_kind_names)
    for (const auto& [recompute, recompute_name] : recompute_names) {
      const seen_range& seen = costs.of(kind, recompute).seen;
      if (seen.tokens[1] == 0) continue;
      fmt::format_to(at, "seen: {:<13} {:<9} {}..{} tokens, lengths {}..{}", kind_name, recompute_name, seen.tokens[0],
                     seen.tokens[1], seen.query_length[0], seen.query_length[1]);
      if (seen.key_length[1] > 0) fmt::format_to(at, ", inputs {}..{}", seen.key_length[0], seen.key_length[1]);
      out += '\n';
    }
  for (const auto& [place, name] : link_place_names) {
    const fitted_link& link = costs.links[static_cast<std::size_t>(place)];
    if (link.points > 0)
      fmt::format_to(at, "link: {} {} points, {} ns + bytes / {:.2f} Gbit/s, mean error {} %\n", name, link.points,
                     link.latency.value(), link.gbps, percent(link.mean_error));
  }
  return out;
}

namespace detail {

/// One panel of a fit's picture: an amount of points over tokens, both logarithmic, with its curve.
class fit_panel {
 public:
  static constexpr int width = 360;
  static constexpr int height = 260;

  fit_panel(const profile& measured, const fitted_cost& fit, layer_kind kind, recompute_mode recompute,
            cost_amount amount)
      : title_{fmt::format("{}, recompute {}: {}", to_string(kind), to_string(recompute), to_string(amount))} {
    for (const profile_point& point : measured.points) {
      const std::int64_t value = amounts_of(point)[static_cast<std::size_t>(amount)];
      if (point.kind != kind || point.recompute != recompute || value <= 0) continue;
      const seen_range at =
          point.varlen ? fitted_cost::range_of(kind, point.packed) : fitted_cost::range_of(kind, point.padded);
      const std::int64_t fitted = point.varlen ? fit.value(amount, kind, point.packed, recompute)
                                               : fit.value(amount, kind, point.padded, recompute);
      dots_.push_back({std::log2(static_cast<double>(at.tokens[0])), std::log2(static_cast<double>(value)),
                       std::log2(static_cast<double>(std::max<std::int64_t>(1, fitted))),
                       std::log2(static_cast<double>(at.query_length[0])), value, fitted, at.tokens[0],
                       at.query_length[0]});
    }
    std::sort(dots_.begin(), dots_.end(), [](const dot& a, const dot& b) {
      return std::tie(a.length, a.tokens, a.measured, a.fitted) < std::tie(b.length, b.tokens, b.measured, b.fitted);
    });
  }

  [[nodiscard]] bool empty() const { return dots_.empty(); }

  void draw(std::string& out, int left, int top) const {
    constexpr int margin = 34;
    double low_x = 1e300, high_x = 0, low_y = 1e300, high_y = 0, high_l = 1;
    for (const dot& d : dots_) {
      low_x = std::min(low_x, d.x);
      high_x = std::max(high_x, d.x);
      low_y = std::min({low_y, d.y, d.fitted_y});
      high_y = std::max({high_y, d.y, d.fitted_y});
      high_l = std::max(high_l, d.length_log);
    }
    const auto x_of = [&](double x) {
      return left + margin + (width - 2 * margin) * (x - low_x) / std::max(1e-9, high_x - low_x);
    };
    const auto y_of = [&](double y) {
      return top + height - margin - (height - 2 * margin) * (y - low_y) / std::max(1e-9, high_y - low_y);
    };
    auto at = std::back_inserter(out);
    fmt::format_to(at,
                   "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#fafafa\" stroke=\"#ccc\"/>\n"
                   "<text x=\"{}\" y=\"{}\">{}</text>\n",
                   left + 4, top + 4, width - 8, height - 8, left + 12, top + 22, title_);
    for (std::size_t i = 0; i < dots_.size(); ++i) {
      const dot& d = dots_[i];
      const int hue = static_cast<int>(280 * d.length_log / high_l);
      if (i > 0 && dots_[i - 1].length == d.length)
        fmt::format_to(at,
                       "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"hsl({},60%,60%)\"/>\n",
                       x_of(dots_[i - 1].x), y_of(dots_[i - 1].fitted_y), x_of(d.x), y_of(d.fitted_y), hue);
      fmt::format_to(
          at,
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.2\" fill=\"hsl({},70%,40%)\"><title>{} tokens of length "
          "{}: measured {}, fitted {} ({:+.1f} %)</title></circle>\n",
          x_of(d.x), y_of(d.y), hue, d.tokens, d.length, d.measured, d.fitted,
          100 * (static_cast<double>(d.fitted) / static_cast<double>(d.measured) - 1));
    }
    fmt::format_to(at,
                   "<text x=\"{}\" y=\"{}\">{:.0f} tokens</text>\n<text x=\"{}\" y=\"{}\" "
                   "text-anchor=\"end\">{:.0f}</text>\n",
                   left + margin, top + height - 12, std::exp2(low_x), left + width - margin, top + height - 12,
                   std::exp2(high_x));
  }

 private:
  struct dot {
    double x, y, fitted_y, length_log;
    std::int64_t measured, fitted, tokens, length;
  };
  std::string title_;
  std::vector<dot> dots_;
};

}  // namespace detail

/// A profile and its fit as an SVG drawing: a panel for each kind, recomputation and pass; dots are measured, lines
/// fitted, both axes logarithmic, the colour by length, with the error of each dot as its tooltip.
[[nodiscard]] inline std::string fit_svg(const profile& measured, const fitted_costs& costs) {
  const fitted_cost fit{costs};
  std::vector<detail::fit_panel> panels;
  for (const auto& [kind, kind_name] : layer_kind_names)
    for (const auto& [recompute, recompute_name] : recompute_names)
      for (const cost_amount amount : {cost_amount::forward, cost_amount::backward, cost_amount::stored}) {
        detail::fit_panel panel{measured, fit, kind, recompute, amount};
        if (costs.of(kind, recompute).of(amount).known && !panel.empty()) panels.push_back(std::move(panel));
      }
  constexpr int columns = 3;
  const int rows = static_cast<int>((panels.size() + columns - 1) / columns);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      columns * detail::fit_panel::width, std::max(1, rows) * detail::fit_panel::height);
  for (std::size_t i = 0; i < panels.size(); ++i)
    panels[i].draw(out, static_cast<int>(i % columns) * detail::fit_panel::width,
                   static_cast<int>(i / columns) * detail::fit_panel::height);
  return out += "</svg>\n";
}

}  // namespace dynapipe
