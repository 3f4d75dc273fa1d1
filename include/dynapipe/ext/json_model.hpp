#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/ext/files.hpp>
#include <dynapipe/ext/json_reader.hpp>

namespace dynapipe {

namespace json_detail {

inline void put_model(std::string& out, const model_spec& model) {
  put(out, R"({"format":"dynapipe.model","version":1,"name":)", quoted(model.name), R"(,"encoder_layers":)",
      model.encoder_layers, R"(,"decoder_layers":)", model.decoder_layers, R"(,"cross_attention":)",
      truth(model.cross_attention), R"(,"hidden":)", model.hidden, R"(,"heads":)", model.heads, R"(,"kv_heads":)",
      model.kv_heads, R"(,"head_dim":)", model.head_dim, R"(,"ffn":)", model.ffn, R"(,"gated":)", truth(model.gated),
      R"(,"vocabulary":)", model.vocabulary, R"(,"tied_head":)", truth(model.tied_head), R"(,"experts":)",
      model.experts, R"(,"experts_per_token":)", model.experts_per_token, R"(,"shared_experts":)", model.shared_experts,
      R"(,"expert_ffn":)", model.expert_ffn, R"(,"window":)", model.window, R"(,"latent":)");
  if (model.latent) {
    put(out, R"({"q_rank":)", model.latent->q_rank, R"(,"kv_rank":)", model.latent->kv_rank, R"(,"nope_dim":)",
        model.latent->nope_dim, R"(,"rope_dim":)", model.latent->rope_dim, R"(,"value_dim":)", model.latent->value_dim,
        "}");
  } else {
    out += "null";
  }
  put(out, R"(,"attention":")", to_string(model.attention), R"(","attention_kernel":")", to_string(model.kernel),
      R"(","dtype":")", to_string(model.type), "\"}");
}

inline void put_link(std::string& out, const link_spec& link) {
  put(out, R"({"latency_ns":)", link.latency, R"(,"gbps":)", decimal(link.gbps), R"(,"ranks_per_link":)",
      link.ranks_per_link);
  if (link.overlap_slowdown != 1) put(out, R"(,"overlap_slowdown":)", decimal(link.overlap_slowdown));
  out += '}';
}

inline void put_cluster(std::string& out, const cluster_spec& cluster) {
  put(out, R"({"format":"dynapipe.cluster","version":1,"name":)", quoted(cluster.name), R"(,"devices_per_node":)",
      cluster.devices_per_node, R"(,"memory_bytes":)", cluster.memory, R"(,"reserve_bytes":)", cluster.reserve,
      R"(,"matmul_tflops":)", decimal(cluster.matmul_tflops), R"(,"memory_gbps":)", decimal(cluster.memory_gbps),
      R"(,"efficiency":)", decimal(cluster.efficiency), R"(,"launch_floor_ns":)", cluster.launch_floor,
      R"(,"intra_node":)");
  put_link(out, cluster.intra_node);
  out += R"(,"inter_node":)";
  put_link(out, cluster.inter_node);
  out += '}';
}

[[nodiscard]] inline latent_spec read_latent(const reader& in) {
  in.allow_only({"q_rank", "kv_rank", "nope_dim", "rope_dim", "value_dim"});
  latent_spec latent;
  if (const auto q_rank = in.find("q_rank")) latent.q_rank = q_rank->integer();
  latent.kv_rank = in["kv_rank"].integer();
  latent.nope_dim = in["nope_dim"].integer();
  latent.rope_dim = in["rope_dim"].integer();
  latent.value_dim = in["value_dim"].integer();
  return latent;
}

[[nodiscard]] inline model_spec read_model(const reader& in) {
  in.allow_only({"format",         "version",          "name",    "encoder_layers",
                 "decoder_layers", "cross_attention",  "hidden",  "heads",
                 "kv_heads",       "head_dim",         "ffn",     "gated",
                 "vocabulary",     "tied_head",        "experts", "experts_per_token",
                 "shared_experts", "expert_ffn",       "window",  "latent",
                 "attention",      "attention_kernel", "dtype"});
  in.require_format("dynapipe.model");

  model_spec model;
  model.name = in["name"].text();
  model.encoder_layers = in["encoder_layers"].integer();
  model.decoder_layers = in["decoder_layers"].integer();
  model.cross_attention = in["cross_attention"].boolean();
  model.hidden = in["hidden"].integer();
  model.heads = in["heads"].integer();
  const auto kv_heads = in.find("kv_heads");
  model.kv_heads = kv_heads ? kv_heads->integer() : model.heads;
  if (const auto head_dim = in.find("head_dim")) {
    model.head_dim = head_dim->integer();
  } else {
    if (model.heads <= 0 || model.hidden % model.heads != 0)
      in.fail("lacks the key \"head_dim\", and hidden (" + std::to_string(model.hidden) +
              ") is no multiple of heads (" + std::to_string(model.heads) + ")");
    model.head_dim = model.hidden / model.heads;
  }
  model.ffn = in["ffn"].integer();
  if (const auto gated = in.find("gated")) model.gated = gated->boolean();
  model.vocabulary = in["vocabulary"].integer();
  model.tied_head = in["tied_head"].boolean();
  const auto number_or_none = [&in](const char* key, std::int64_t& field) {
    if (const auto value = in.find(key); value && !value->is_null()) field = value->integer();
  };
  number_or_none("experts", model.experts);
  number_or_none("experts_per_token", model.experts_per_token);
  number_or_none("shared_experts", model.shared_experts);
  number_or_none("expert_ffn", model.expert_ffn);
  number_or_none("window", model.window);
  if (const auto latent = in.find("latent"); latent && !latent->is_null()) model.latent = read_latent(*latent);
  if (const auto attention = in.find("attention")) model.attention = attention->word(attention_mask_names);
  if (const auto kernel = in.find("attention_kernel")) model.kernel = kernel->word(attention_kernel_names);
  model.type = in["dtype"].word(dtype_names);
  return model;
}

[[nodiscard]] inline link_spec read_link(const reader& in) {
  in.allow_only({"latency_ns", "gbps", "ranks_per_link", "overlap_slowdown"});
  link_spec link;
  if (const auto latency = in.find("latency_ns")) link.latency = latency->time();
  link.gbps = in["gbps"].number();
  if (const auto ranks = in.find("ranks_per_link")) link.ranks_per_link = ranks->integer();
  if (const auto slowdown = in.find("overlap_slowdown")) link.overlap_slowdown = slowdown->number();
  return link;
}

[[nodiscard]] inline cluster_spec read_cluster(const reader& in) {
  in.allow_only({"format", "version", "name", "devices_per_node", "memory_bytes", "reserve_bytes", "matmul_tflops",
                 "memory_gbps", "efficiency", "launch_floor_ns", "intra_node", "inter_node"});
  in.require_format("dynapipe.cluster");
  cluster_spec cluster;
  cluster.name = in["name"].text();
  cluster.devices_per_node = in["devices_per_node"].integer();
  cluster.memory = in["memory_bytes"].size_in_bytes();
  if (const auto reserve = in.find("reserve_bytes")) cluster.reserve = reserve->size_in_bytes();
  cluster.matmul_tflops = in["matmul_tflops"].number();
  cluster.memory_gbps = in["memory_gbps"].number();
  if (const auto efficiency = in.find("efficiency")) cluster.efficiency = efficiency->number();
  if (const auto floor = in.find("launch_floor_ns")) cluster.launch_floor = floor->time();
  cluster.intra_node = read_link(in["intra_node"]);
  cluster.inter_node = read_link(in["inter_node"]);
  return cluster;
}

/// A sound model or cluster of a text, or an error that begins with the file's name.
template <class Read>
[[nodiscard]] auto read_sound(std::string_view text, const std::string& name, Read read) {
  const json root = parse(text, name);
  auto spec = read(reader{root, name, false});
  try {
    require_sound(spec);
  } catch (const error& unsound) {
    throw error{name + ": " + unsound.what()};
  }
  return spec;
}

}  // namespace json_detail

/// `model` as a file of format "dynapipe.model", version 1: one line, keys in the documented order.
[[nodiscard]] inline std::string to_json_text(const model_spec& model) {
  std::string out;
  json_detail::put_model(out, model);
  return out += '\n';
}

/// `cluster` as a file of format "dynapipe.cluster", version 1: one line, keys in the documented order.
[[nodiscard]] inline std::string to_json_text(const cluster_spec& cluster) {
  std::string out;
  json_detail::put_cluster(out, cluster);
  return out += '\n';
}

/// The model that a "dynapipe.model" text describes. Left out, `kv_heads` is `heads`, `head_dim` is `hidden` / `heads`,
/// `gated` false, `attention` causal and `attention_kernel` fused; experts, `window` and `latent`, which may be null
/// too, are none, and `q_rank` is 0. `name` is what errors call the text.
///
/// @throws error with line and column, or field and value, where it is no JSON, no such text, or not sound.
[[nodiscard]] inline model_spec model_from_json(std::string_view text, const std::string& name = "model") {
  return json_detail::read_sound(text, name, json_detail::read_model);
}

/// The cluster that a "dynapipe.cluster" text describes. Left out, `reserve_bytes`, `launch_floor_ns` and `latency_ns`
/// are 0, `ranks_per_link` and `overlap_slowdown` 1 and `efficiency` 0.55. `name` is what errors call the text.
///
/// @throws error with line and column, or field and value, where it is no JSON, no such text, or not sound.
[[nodiscard]] inline cluster_spec cluster_from_json(std::string_view text, const std::string& name = "cluster") {
  return json_detail::read_sound(text, name, json_detail::read_cluster);
}

/// Reads a model's file; see `model_from_json`.
///
/// @throws error as `model_from_json`, or where the file cannot be read.
[[nodiscard]] inline model_spec load_model(const std::filesystem::path& path) {
  return model_from_json(read_file(path), path.string());
}

/// Reads a cluster's file; see `cluster_from_json`.
///
/// @throws error as `cluster_from_json`, or where the file cannot be read.
[[nodiscard]] inline cluster_spec load_cluster(const std::filesystem::path& path) {
  return cluster_from_json(read_file(path), path.string());
}

/// Writes a model's file, whole or not at all.
///
/// @throws error naming the path, where it cannot be written.
inline void save(const model_spec& model, const std::filesystem::path& path) { write_file(path, to_json_text(model)); }

/// Writes a cluster's file, whole or not at all.
///
/// @throws error naming the path, where it cannot be written.
inline void save(const cluster_spec& cluster, const std::filesystem::path& path) {
  write_file(path, to_json_text(cluster));
}

}  // namespace dynapipe
