#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/profile.hpp>
#include <dynapipe/cost/profile_sound.hpp>
#include <dynapipe/ext/files.hpp>
#include <dynapipe/ext/json_reader.hpp>

/// Reading and writing of profiles. Needs nlohmann/json.

namespace dynapipe {

namespace json_detail {

inline void put_profile_point(std::string& out, const profile_point& point) {
  put(out, R"({"kind":")", to_string(point.kind), R"(","recompute":")", to_string(point.recompute), R"(",)");
  if (point.varlen) {
    const varlen_shape& v = point.packed;
    put(out, R"("tokens":)", v.tokens, R"(,"squares":)", v.squares, R"(,"samples":)", v.samples);
    if (v.target_tokens != 0 || v.target_squares != 0 || v.cross_pairs != 0)
      put(out, R"(,"target_tokens":)", v.target_tokens, R"(,"target_squares":)", v.target_squares, R"(,"cross_pairs":)",
          v.cross_pairs);
  } else {
    put(out, R"("rows":)", point.padded.rows, R"(,"input":)", point.padded.input, R"(,"target":)", point.padded.target);
  }
  const detail::profile_amounts amounts = detail::amounts_of(point);
  for (std::size_t a = 0; a < amounts.size(); ++a)
    put(out, ",\"", detail::profile_amount_names[a], "\":", amounts[a]);
  put(out, R"(,"out_of_memory":)", truth(point.out_of_memory), "}");
}

/// A padded shape in `rows`, `input`, `target`, or a varlen one in `tokens` and so on.
inline void read_shape(const reader& in, profile_point& point) {
  const auto optional = [&](const char* key) {
    const auto value = in.find(key);
    return value ? value->integer() : 0;
  };
  point.varlen = in.find("tokens").has_value();
  for (const char* key : {"rows", "input", "target"})
    if (point.varlen && in.find(key))
      in.fail(std::string{"has both \"tokens\" and \""} + key + "\": a shape is either padded or varlen");
  for (const char* key : {"squares", "samples", "target_tokens", "target_squares", "cross_pairs"})
    if (!point.varlen && in.find(key)) in.fail(std::string{"has \""} + key + "\", but no \"tokens\"");
  if (point.varlen)
    point.packed = {in["tokens"].integer(),    in["squares"].integer(),    in["samples"].integer(),
                    optional("target_tokens"), optional("target_squares"), optional("cross_pairs")};
  else
    point.padded = {in["rows"].integer(), in["input"].integer(), optional("target")};
}

/// A point of a profile that was measured on `device`.
[[nodiscard]] inline profile_point read_profile_point(const reader& in, const std::string& device) {
  in.allow_only({"kind",
                 "recompute",
                 "device",
                 "rows",
                 "input",
                 "target",
                 "tokens",
                 "squares",
                 "samples",
                 "target_tokens",
                 "target_squares",
                 "cross_pairs",
                 "forward_ns",
                 "backward_ns",
                 "weight_ns",
                 "stored_bytes",
                 "weight_stored_bytes",
                 "forward_peak_bytes",
                 "backward_peak_bytes",
                 "out_of_memory"});
  if (const auto other = in.find("device"); other && other->text() != device)
    other->fail("mixed devices: this point was measured on " + quoted(other->text()) + ", the profile is of " +
                quoted(device));
  profile_point point;
  point.kind = in["kind"].word(layer_kind_names);
  point.recompute = in["recompute"].word(recompute_names);
  read_shape(in, point);
  if (const auto failed = in.find("out_of_memory")) point.out_of_memory = failed->boolean();
  detail::profile_amounts amounts{};
  for (std::size_t a = 0; a < amounts.size(); ++a) {
    const bool needed = a < detail::profile_times_always_measured && !point.out_of_memory;
    const auto amount = in.find(detail::profile_amount_names[a]);
    if (amount || needed) amounts[a] = in[detail::profile_amount_names[a]].integer();
  }
  detail::set_amounts(point, amounts);
  return point;
}

[[nodiscard]] inline profile read_profile(const reader& in) {
  in.allow_only(
      {"format", "version", "device", "dtype", "tensor_parallel", "layer", "parameters_bytes", "points", "links"});
  in.require_format("dynapipe.profile");
  profile p;
  p.device = in["device"].text();
  p.type = in["dtype"].word(dtype_names);
  p.tensor_parallel = in["tensor_parallel"].integer();
  if (const reader layer = in["layer"]; !layer.is_null()) {
    layer.allow_only({"hidden", "heads", "kv_heads", "ffn", "gated"});
    p.hidden = layer["hidden"].integer(1);
    p.heads = layer["heads"].integer(1);
    const auto kv_heads = layer.find("kv_heads");
    p.kv_heads = kv_heads ? kv_heads->integer(1) : p.heads;
    p.ffn = layer["ffn"].integer(1);
    if (const auto gated = layer.find("gated")) p.gated = gated->boolean();
  }
  if (const auto parameters = in.find("parameters_bytes")) {
    parameters->allow_only({"embedding", "encoder", "decoder", "cross_decoder", "head"});
    for (const auto& [kind, name] : layer_kind_names)
      if (const auto amount = parameters->find(name.data()))
        p.parameters[static_cast<std::size_t>(kind)] = amount->size_in_bytes();
  }
  p.points = in["points"].list([&](const reader& point) { return read_profile_point(point, p.device); });
  if (const auto links = in.find("links"))
    p.links = links->list([](const reader& link) {
      link.allow_only({"place", "bytes", "ns"});
      return profile_link{link["place"].word(link_place_names), link["bytes"].size_in_bytes(), link["ns"].time()};
    });
  return p;
}

}  // namespace json_detail

/// `p` as a file of format "dynapipe.profile", version 1: keys in the documented order, one point or link a line. Layer
/// sizes that are all 0 (unknown) are written as null. Reading the text gives `p` again.
[[nodiscard]] inline std::string to_json_text(const profile& p) {
  using namespace json_detail;
  std::string out;
  put(out, R"({"format":"dynapipe.profile","version":1,"device":)", quoted(p.device), R"(,"dtype":")",
      to_string(p.type), R"(","tensor_parallel":)", p.tensor_parallel, R"(,"layer":)");
  if (p.hidden == 0 && p.heads == 0 && p.kv_heads == 0 && p.ffn == 0)
    out += "null";
  else
    put(out, R"({"hidden":)", p.hidden, R"(,"heads":)", p.heads, R"(,"kv_heads":)", p.kv_heads, R"(,"ffn":)", p.ffn,
        R"(,"gated":)", truth(p.gated), "}");
  const char* before = R"(,"parameters_bytes":{")";
  for (const auto& [kind, name] : layer_kind_names) {
    put(out, before, name, "\":", p.parameters_of(kind));
    before = ",\"";
  }
  before = "},\n\"points\":[\n";
  for (const profile_point& point : p.points) {
    out += before;
    put_profile_point(out, point);
    before = ",\n";
  }
  out += p.points.empty() ? "},\n\"points\":[],\n\"links\":[" : "],\n\"links\":[";
  before = "\n";
  for (const profile_link& link : p.links) {
    put(out, before, R"({"place":")", to_string(link.place), R"(","bytes":)", link.size, R"(,"ns":)", link.time, "}");
    before = ",\n";
  }
  return out += "]}\n";
}

/// The profile that a "dynapipe.profile" text describes, its points as they stand there (see `merged`). Left out,
/// `kv_heads` is `heads`, `gated` false, `links` empty, and `target`, `weight_ns`, memory and parameters are 0. A point
/// is padded (`rows`, `input`, `target`) or varlen (`tokens`, `squares`, `samples`, and for a decoder with
/// cross-attention `target_tokens`, `target_squares`, `cross_pairs`). A point may repeat the profile's `device`.
/// `layer` null says that the sizes are not known. `name` is what errors call the text.
///
/// @throws error with line and column, or field, point and value, where it is no JSON, no such text, mixes devices, or
/// is not sound (see `require_sound`).
[[nodiscard]] inline profile profile_from_json(std::string_view text, const std::string& name = "profile") {
  const json_detail::json root = json_detail::parse(text, name);
  profile p = json_detail::read_profile(json_detail::reader{root, name, false});
  require_sound(p, name);
  return p;
}

/// Reads a profile's file; see `profile_from_json`.
///
/// @throws error as `profile_from_json`, or where the file cannot be read.
[[nodiscard]] inline profile load_profile(const std::filesystem::path& path) {
  return profile_from_json(read_file(path), path.string());
}

/// Writes a profile's file, whole or not at all.
///
/// @throws error naming the path, where it cannot be written.
inline void save(const profile& p, const std::filesystem::path& path) { write_file(path, to_json_text(p)); }

}  // namespace dynapipe
