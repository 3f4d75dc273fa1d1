#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/fitted.hpp>
#include <dynapipe/ext/files.hpp>
#include <dynapipe/ext/json_reader.hpp>

/// Reading and writing of fitted costs. Needs nlohmann/json.

namespace dynapipe {

namespace json_detail {

/// The coefficients of a curve, as its file names them.
inline constexpr std::array<std::pair<const char*, std::int64_t cost_curve::*>, 8> coefficient_names{
    {{"floor", &cost_curve::floor},
     {"constant", &cost_curve::constant},
     {"queries", &cost_curve::queries},
     {"keys", &cost_curve::keys},
     {"self_pairs", &cost_curve::self_pairs},
     {"cross_pairs", &cost_curve::cross_pairs},
     {"self_cubes", &cost_curve::self_cubes},
     {"cross_cubes", &cost_curve::cross_cubes}}};
inline constexpr std::int64_t largest_coefficient = (std::int64_t{1} << 61) - 1;

inline constexpr std::array<std::pair<const char*, std::array<std::int64_t, 2> seen_range::*>, 3> seen_names{
    {{"tokens", &seen_range::tokens},
     {"query_length", &seen_range::query_length},
     {"key_length", &seen_range::key_length}}};

/// Begins the next line of a list, with the kind and recomputation that it tells of.
inline void put_layer(std::string& lines, layer_kind kind, recompute_mode recompute) {
  put(lines, lines.empty() ? "\n" : ",\n", R"({"kind":")", to_string(kind), R"(","recompute":")", to_string(recompute),
      "\"");
}

inline void put_seen(std::string& lines, layer_kind kind, recompute_mode recompute, const seen_range& seen) {
  put_layer(lines, kind, recompute);
  for (const auto& [name, range] : seen_names)
    put(lines, ",\"", name, "\":[", (seen.*range)[0], ",", (seen.*range)[1], "]");
  lines += '}';
}

inline void put_curve(std::string& lines, layer_kind kind, recompute_mode recompute, cost_amount amount,
                      const fitted_curve& fitted) {
  put_layer(lines, kind, recompute);
  put(lines, R"(,"amount":")", to_string(amount), "\"");
  for (const auto& [name, coefficient] : coefficient_names)
    put(lines, ",\"", name, "\":", fitted.curve.*coefficient);
  const fit_error& e = fitted.error;
  put(lines, R"(,"error":{"points":)", e.points, R"(,"mean":)", decimal(e.mean), R"(,"p95":)", decimal(e.p95),
      R"(,"out_mean":)", decimal(e.out_mean), R"(,"out_p95":)", decimal(e.out_p95), "}}");
}

inline void put_link(std::string& lines, link_place place, const fitted_link& link) {
  put(lines, lines.empty() ? "\n" : ",\n", R"({"place":")", to_string(place), R"(","points":)", link.points,
      R"(,"latency_ns":)", link.latency, R"(,"gbps":)", decimal(link.gbps), R"(,"mean_error":)",
      decimal(link.mean_error), "}");
}

/// A relative error; -1 where it may be unknown.
[[nodiscard]] inline double read_share(const reader& in, bool may_be_unknown) {
  const double share = in.number();
  if (share < 0 && !(may_be_unknown && share == -1)) in.refuse(may_be_unknown ? "at least 0, or -1" : "at least 0");
  return share;
}

[[nodiscard]] inline fit_error read_fit_error(const reader& in) {
  in.allow_only({"points", "mean", "p95", "out_mean", "out_p95"});
  return {.points = in["points"].integer(1),
          .mean = read_share(in["mean"], false),
          .p95 = read_share(in["p95"], false),
          .out_mean = read_share(in["out_mean"], true),
          .out_p95 = read_share(in["out_p95"], true)};
}

[[nodiscard]] inline fitted_layer& read_layer_name(const reader& in, fitted_costs& costs) {
  return costs.of(in["kind"].word(layer_kind_names), in["recompute"].word(recompute_names));
}

inline void read_seen_range(const reader& in, fitted_costs& costs) {
  in.allow_only({"kind", "recompute", "tokens", "query_length", "key_length"});
  seen_range& seen = read_layer_name(in, costs).seen;
  if (seen != seen_range{}) in.fail("this kind and recompute stands here twice");
  for (const auto& [name, range] : seen_names) {
    const reader both = in[name];
    if (both.size() != 2) both.fail("must be a list of the least and the greatest");
    const std::int64_t least = both.element(0).integer(range == &seen_range::key_length ? 0 : 1);
    seen.*range = {least, both.element(1).integer(least)};
  }
}

inline void read_fitted_curve(const reader& in, fitted_costs& costs) {
  in.allow_only({"kind", "recompute", "amount", "floor", "constant", "queries", "keys", "self_pairs", "cross_pairs",
                 "self_cubes", "cross_cubes", "error"});
  fitted_layer& layer = read_layer_name(in, costs);
  fitted_curve& fitted = layer.amounts[static_cast<std::size_t>(in["amount"].word(cost_amount_names))];
  if (fitted.known) in.fail("this kind, recompute and amount stands here twice");
  if (layer.seen == seen_range{}) in.fail("\"seen\" does not say where this kind and recompute was measured");
  fitted.known = true;
  for (const auto& [name, coefficient] : coefficient_names)
    fitted.curve.*coefficient = in[name].integer(0, largest_coefficient);
  fitted.error = read_fit_error(in["error"]);
}

inline void read_fitted_link(const reader& in, fitted_costs& costs) {
  in.allow_only({"place", "points", "latency_ns", "gbps", "mean_error"});
  fitted_link& link = costs.links[static_cast<std::size_t>(in["place"].word(link_place_names))];
  if (link.points != 0) in.fail("this place stands here twice");
  link.points = in["points"].integer(1);
  link.latency = nanoseconds{in["latency_ns"].integer(0, 999'999'999'999)};
  link.gbps = in["gbps"].number();
  if (!(link.gbps > 0 && link.gbps <= 1e9)) in["gbps"].refuse("above 0 and at most 1e9");
  link.mean_error = read_share(in["mean_error"], false);
}

[[nodiscard]] inline fitted_costs read_costs(const reader& in) {
  in.require_format("dynapipe.costs");
  in.allow_only(
      {"format", "version", "device", "dtype", "tensor_parallel", "parameters_bytes", "seen", "curves", "links"});
  fitted_costs costs;
  costs.device = in["device"].text();
  costs.type = in["dtype"].word(dtype_names);
  costs.tensor_parallel = in["tensor_parallel"].integer(1, 1'000'000);
  const reader parameters = in["parameters_bytes"];
  parameters.allow_only({"embedding", "encoder", "decoder", "cross_decoder", "head"});
  for (const auto& [kind, name] : layer_kind_names)
    costs.parameters[static_cast<std::size_t>(kind)] = bytes{parameters[name.data()].integer(0, std::int64_t{1} << 50)};
  const auto each = [&](const char* key, auto read) {
    const reader list = in[key];
    for (std::size_t k = 0; k < list.size(); ++k)
      read(list.element(k), costs);
  };
  each("seen", read_seen_range);
  each("curves", read_fitted_curve);
  each("links", read_fitted_link);
  return costs;
}

}  // namespace json_detail

/// `costs` as a file of format "dynapipe.costs", version 1: keys in the documented order; what was seen of a kind and
/// recomputation, a curve, or a link on each line. Only curves that are known and links that were measured are written.
[[nodiscard]] inline std::string to_json_text(const fitted_costs& costs) {
  using namespace json_detail;
  std::string out;
  put(out, R"({"format":"dynapipe.costs","version":1,"device":)", quoted(costs.device), R"(,"dtype":")",
      to_string(costs.type), R"(","tensor_parallel":)", costs.tensor_parallel, R"(,"parameters_bytes":)");
  for (const auto& [kind, name] : layer_kind_names)
    put(out, kind == layer_kind::embedding ? "{\"" : ",\"", name,
        "\":", costs.parameters[static_cast<std::size_t>(kind)]);
  std::string seen;
  std::string curves;
  for (const auto& [kind, kind_name] : layer_kind_names)
    for (const auto& [recompute, recompute_name] : recompute_names) {
      const fitted_layer& layer = costs.of(kind, recompute);
      if (layer.seen != seen_range{}) put_seen(seen, kind, recompute, layer.seen);
      for (const auto& [amount, name] : cost_amount_names)
        if (layer.of(amount).known) put_curve(curves, kind, recompute, amount, layer.of(amount));
    }
  std::string links;
  for (const auto& [place, name] : link_place_names) {
    const fitted_link& link = costs.links[static_cast<std::size_t>(place)];
    if (link.points > 0) put_link(links, place, link);
  }
  put(out, "},\n\"seen\":[", seen, "],\n\"curves\":[", curves, "],\n\"links\":[", links, "]}\n");
  return out;
}

/// The costs that a "dynapipe.costs" text describes; `name` is what errors call the text.
///
/// Guarantee: costs_from_json(to_json_text(c)) == c for all that `fit` makes of a profile whose device is named in
/// UTF-8. Lists may stand in any order, and none of their entries twice. A curve needs a `seen` of its kind and
/// recomputation. Coefficients lie in 0..2^61 - 1.
///
/// @throws error with line and column, or field and value, where it is no JSON or no such text.
[[nodiscard]] inline fitted_costs costs_from_json(std::string_view text, const std::string& name = "costs") {
  const json_detail::json root = json_detail::parse(text, name);
  return json_detail::read_costs(json_detail::reader{root, name, false});
}

/// Reads a costs' file; see `costs_from_json`.
///
/// @throws error as `costs_from_json`, or where the file cannot be read.
[[nodiscard]] inline fitted_costs load_costs(const std::filesystem::path& path) {
  return costs_from_json(read_file(path), path.string());
}

/// Writes a costs' file, whole or not at all.
///
/// @throws error naming the path, where it cannot be written.
inline void save(const fitted_costs& costs, const std::filesystem::path& path) {
  write_file(path, to_json_text(costs));
}

}  // namespace dynapipe
