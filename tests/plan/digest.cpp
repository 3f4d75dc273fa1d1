#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/plan/digest.hpp>

#include "sample_plan.hpp"

using namespace dynapipe;

namespace {

/// A sample plan with a provenance, so that every field of every structure is there.
plan full() {
  plan p = sample_plans::with_arena();
  p.provenance = {.version = "0.1.0",
                  .model = presets::t5_11b(),
                  .cluster = presets::a100_40g(),
                  .cost_source = "roofline",
                  .cost_epoch = 3,
                  .options = {{"pp", "2"}, {"dp", "1"}}};
  p.provenance.model.latent = latent_spec{1, 2, 3, 4, 5};
  return p;
}

using change = void (*)(plan&);
template <class Id>
void next(Id& id) {
  id = static_cast<Id>(static_cast<std::int64_t>(id) + 1);
}
instruction& first(plan& p) { return p.replicas[0].devices[0].instructions[0]; }
planned_micro_batch& batch(plan& p) { return p.replicas[0].micro_batches[0]; }
stage_cost& cost(plan& p) { return batch(p).cost[0]; }
boundary_cost& boundary(plan& p) { return batch(p).boundary[0]; }
model_spec& model(plan& p) { return p.provenance.model; }
cluster_spec& cluster(plan& p) { return p.provenance.cluster; }

/// One change of each field.
const std::vector<change>& changes() {
  static const std::vector<change> all{
      [](plan& p) { p.provenance.version = "0.1.1"; },
      [](plan& p) { p.provenance.cost_source += '\0'; },
      [](plan& p) { p.provenance.cost_epoch += 1; },
      [](plan& p) { p.provenance.options[0].first = "pq"; },
      [](plan& p) { p.provenance.options[1].second = "2"; },
      [](plan& p) { p.provenance.options.pop_back(); },
      [](plan& p) { model(p).name += "x"; },
      [](plan& p) { ++model(p).encoder_layers; },
      [](plan& p) { ++model(p).decoder_layers; },
      [](plan& p) { model(p).cross_attention = false; },
      [](plan& p) { ++model(p).hidden; },
      [](plan& p) { ++model(p).heads; },
      [](plan& p) { ++model(p).kv_heads; },
      [](plan& p) { ++model(p).head_dim; },
      [](plan& p) { ++model(p).ffn; },
      [](plan& p) { model(p).gated = true; },
      [](plan& p) { ++model(p).vocabulary; },
      [](plan& p) { model(p).tied_head = false; },
      [](plan& p) { ++model(p).experts; },
      [](plan& p) { ++model(p).experts_per_token; },
      [](plan& p) { ++model(p).shared_experts; },
      [](plan& p) { ++model(p).expert_ffn; },
      [](plan& p) { ++model(p).window; },
      [](plan& p) { model(p).latent.reset(); },
      [](plan& p) { ++model(p).latent->q_rank; },
      [](plan& p) { ++model(p).latent->kv_rank; },
      [](plan& p) { ++model(p).latent->nope_dim; },
      [](plan& p) { ++model(p).latent->rope_dim; },
      [](plan& p) { ++model(p).latent->value_dim; },
      [](plan& p) { next(model(p).attention); },
      [](plan& p) { next(model(p).kernel); },
      [](plan& p) { next(model(p).type); },
      [](plan& p) { cluster(p).name.clear(); },
      [](plan& p) { ++cluster(p).devices_per_node; },
      [](plan& p) { cluster(p).memory += bytes{1}; },
      [](plan& p) { cluster(p).reserve += bytes{1}; },
      [](plan& p) { cluster(p).matmul_tflops += 0.5; },
      [](plan& p) { cluster(p).memory_gbps += 0.5; },
      [](plan& p) { cluster(p).efficiency = 0.55000000000000016; },
      [](plan& p) { cluster(p).launch_floor += nanoseconds{1}; },
      [](plan& p) { cluster(p).intra_node.latency += nanoseconds{1}; },
      [](plan& p) { cluster(p).intra_node.gbps += 1; },
      [](plan& p) { ++cluster(p).inter_node.ranks_per_link; },
      [](plan& p) { cluster(p).inter_node.overlap_slowdown = 1.5; },
      [](plan& p) { ++p.lengths[1].input; },
      [](plan& p) { ++p.lengths[1].target; },
      [](plan& p) { ++p.lengths[1].loss; },
      [](plan& p) { p.lengths.pop_back(); },
      [](plan& p) { ++p.source_rows[0]; },
      [](plan& p) { p.source_rows.push_back(0); },
      [](plan& p) { p.dropped.emplace_back(sample_id{0}); },
      [](plan& p) { p.layout = batch_layout::varlen; },
      [](plan& p) { ++p.pipeline.devices; },
      [](plan& p) { ++p.pipeline.stages[0].encoder.from; },
      [](plan& p) { ++p.pipeline.stages[0].encoder.to; },
      [](plan& p) { ++p.pipeline.stages[1].decoder.from; },
      [](plan& p) { ++p.pipeline.stages[1].decoder.to; },
      [](plan& p) { p.pipeline.stages[0].embedding = !p.pipeline.stages[0].embedding; },
      [](plan& p) { p.pipeline.stages[0].head = !p.pipeline.stages[0].head; },
      [](plan& p) { next(p.pipeline.type); },
      [](plan& p) { next(p.pipeline.stage_device[1]); },
      [](plan& p) { p.pipeline.schedule += " "; },
      [](plan& p) { p.pipeline.recompute = recompute_mode::full; },
      [](plan& p) { p.pipeline.recompute.reset(); },
      [](plan& p) { ++p.pipeline.tensor_parallel; },
      [](plan& p) { ++p.pipeline.context_parallel; },
      [](plan& p) { next(p.pipeline.queues); },
      [](plan& p) { p.predicted += nanoseconds{1}; },
      [](plan& p) { p.sync += nanoseconds{1}; },
      [](plan& p) { p.iteration += nanoseconds{1}; },
      [](plan& p) { p.lower_bound -= nanoseconds{1}; },
      [](plan& p) { p.replicas.push_back(p.replicas[0]); },
      [](plan& p) { p.replicas[0].predicted += nanoseconds{1}; },
      [](plan& p) { p.replicas[0].micro_batches.pop_back(); },
      [](plan& p) { p.replicas[0].devices.pop_back(); },
      [](plan& p) { next(batch(p).samples[0][0]); },
      [](plan& p) { batch(p).samples[0].push_back(sample_id{0}); },
      [](plan& p) { batch(p).samples.emplace_back(); },
      [](plan& p) { ++batch(p).rows; },
      [](plan& p) { ++batch(p).input_length; },
      [](plan& p) { ++batch(p).target_length; },
      [](plan& p) { ++batch(p).loss_tokens; },
      [](plan& p) { batch(p).dummy = true; },
      [](plan& p) { cost(p).forward += nanoseconds{1}; },
      [](plan& p) { cost(p).backward += nanoseconds{1}; },
      [](plan& p) { cost(p).weight += nanoseconds{1}; },
      [](plan& p) { cost(p).stored += bytes{1}; },
      [](plan& p) { cost(p).weight_stored += bytes{1}; },
      [](plan& p) { cost(p).forward_peak += bytes{1}; },
      [](plan& p) { cost(p).backward_peak += bytes{1}; },
      [](plan& p) { next(cost(p).recompute); },
      [](plan& p) { ++boundary(p).tensors[0][0]; },
      [](plan& p) { ++boundary(p).tensors[0][1]; },
      [](plan& p) { ++boundary(p).tensors[0][2]; },
      [](plan& p) { boundary(p).forward_bytes += bytes{1}; },
      [](plan& p) { boundary(p).forward += nanoseconds{1}; },
      [](plan& p) { boundary(p).backward_bytes += bytes{1}; },
      [](plan& p) { boundary(p).backward += nanoseconds{1}; },
      [](plan& p) { p.replicas[0].devices[0].capacity += bytes{1}; },
      [](plan& p) { p.replicas[0].devices[0].fixed += bytes{1}; },
      [](plan& p) { p.replicas[0].devices[0].peak += bytes{1}; },
      [](plan& p) { p.replicas[0].devices[0].arena.reset(); },
      [](plan& p) { *p.replicas[0].devices[0].arena += bytes{1}; },
      [](plan& p) { p.replicas[0].devices[0].instructions.pop_back(); },
      [](plan& p) { std::swap(p.replicas[0].devices[0].instructions[0], p.replicas[0].devices[0].instructions[1]); },
      [](plan& p) { next(first(p).op); },
      [](plan& p) { next(first(p).mb); },
      [](plan& p) { next(first(p).stage); },
      [](plan& p) { next(first(p).peer); },
      [](plan& p) { next(first(p).tensor); },
      [](plan& p) { first(p).in.push_back(buffer_id{0}); },
      [](plan& p) { next(first(p).out); },
      [](plan& p) { first(p).size += bytes{1}; },
      [](plan& p) { first(p).offset.reset(); },
      [](plan& p) { *first(p).offset += bytes{8}; },
      [](plan& p) { first(p).grads_ready = true; },
      [](plan& p) { first(p).start += nanoseconds{1}; },
      [](plan& p) { first(p).end += nanoseconds{1}; },
  };
  return all;
}

}  // namespace

TEST_CASE("word_hash: the documented function, as another program computes it") {
  word_hash hash;
  CHECK(hash.value() == 0x64796E6170697065U);
  hash.add(0);
  CHECK(hash.value() == 0x6E1328D797CF72C8U);
  hash.add(0xFFFFFFFFFFFFFFFFU);
  CHECK(hash.value() == 0xEFDA1C28EE2B62AEU);
  detail::plan_hasher parts;
  parts.add(std::string{"dynapipe!"});
  parts.add(std::vector<device_id>{device_id{3}, device_id{-1}});
  parts.add(0.55);
  parts.add(std::optional<bytes>{});
  parts.add(std::optional<bytes>{bytes{7}});
  parts.add(true);
  CHECK(parts.value() == 0xF92763DB534A313DU);
}

TEST_CASE("digest: any change of any field changes it, and no two changes meet") {
  const plan p = full();
  const std::uint64_t whole = digest(p);
  CHECK(digest(full()) == whole);
  std::set<std::uint64_t> all{whole};
  for (std::size_t i = 0; i < changes().size(); ++i) {
    CAPTURE(i);
    plan other = p;
    changes()[i](other);
    REQUIRE(other != p);
    CHECK(digest(other) != whole);
    all.insert(digest(other));
  }
  CHECK(all.size() == changes().size() + 1);
}

TEST_CASE("digest: options count in the order of their names, as files hold them") {
  const plan p = full();
  plan other = p;
  std::swap(other.provenance.options[0], other.provenance.options[1]);
  CHECK(digest(other) == digest(p));
}

TEST_CASE("digest: where texts and lists end counts") {
  plan a = full(), b = full();
  a.provenance.options = {{"ab", "c"}};
  b.provenance.options = {{"a", "bc"}};
  CHECK(digest(a) != digest(b));
  a = b = full();
  batch(a).samples = {{sample_id{0}, sample_id{1}}, {}};
  batch(b).samples = {{sample_id{0}}, {sample_id{1}}};
  CHECK(digest(a) != digest(b));
  CHECK(digest(plan{}) != digest(full()));
}
