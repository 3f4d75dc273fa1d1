#include "mutations.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/plan/validate.hpp>

using namespace dynapipe;

TEST_CASE("mutations: every way of breaking a plan is reported for what it is") {
  CHECK(mutations::all().size() >= 40);
  for (const mutations::mutation& m : mutations::all()) {
    CAPTURE(m.name);
    plan p = m.sample();
    REQUIRE(validate(p).empty());
    m.apply(p);
    bool reported = false;
    std::string all;
    for (const violation& v : validate(p)) {
      reported = reported || v.what.find(m.expected) != std::string::npos;
      all += v.where + ": " + v.what + '\n';
    }
    CHECK_MESSAGE(reported, "reported instead: " << all);
  }
}

namespace {

/// Calls `visit` with every field of a plan that is a number, a word or a truth, its provenance left aside.
template <class Visit>
void each_field(plan& p, Visit visit) {
  for (sample_lengths& s : p.lengths)
    visit(s.input), visit(s.target), visit(s.loss);
  for (std::int64_t& row : p.source_rows)
    visit(row);
  for (sample_id& id : p.dropped)
    visit(id);
  visit(p.layout);
  visit(p.pipeline.devices);
  for (stage_spec& s : p.pipeline.stages)
    visit(s.encoder.from), visit(s.encoder.to), visit(s.decoder.from), visit(s.decoder.to);
  for (device_id& d : p.pipeline.stage_device)
    visit(d);
  visit(p.pipeline.type), visit(p.pipeline.queues), visit(p.pipeline.tensor_parallel);
  visit(p.pipeline.context_parallel), visit(p.predicted), visit(p.sync), visit(p.iteration), visit(p.lower_bound);
  for (replica_plan& r : p.replicas) {
    visit(r.predicted);
    for (planned_micro_batch& m : r.micro_batches) {
      for (std::vector<sample_id>& row : m.samples)
        for (sample_id& id : row)
          visit(id);
      visit(m.rows), visit(m.input_length), visit(m.target_length), visit(m.loss_tokens), visit(m.dummy);
      for (stage_cost& c : m.cost) {
        visit(c.forward), visit(c.backward), visit(c.weight), visit(c.stored), visit(c.weight_stored);
        visit(c.forward_peak), visit(c.backward_peak), visit(c.recompute);
      }
      for (boundary_cost& b : m.boundary)
        visit(b.forward_bytes), visit(b.forward), visit(b.backward_bytes), visit(b.backward);
    }
    for (device_plan& d : r.devices) {
      visit(d.capacity), visit(d.fixed), visit(d.peak), visit(d.arena);
      for (instruction& i : d.instructions) {
        visit(i.op), visit(i.mb), visit(i.stage), visit(i.peer), visit(i.tensor), visit(i.out), visit(i.size);
        visit(i.offset), visit(i.grads_ready), visit(i.start), visit(i.end);
        for (buffer_id& id : i.in)
          visit(id);
      }
    }
  }
}

using source = std::mt19937_64;

std::int64_t drawn(source& random, std::int64_t old) {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  switch (random() % 8) {
    case 0: return old == most ? old : old + 1;
    case 1: return old == least ? old : old - 1;
    case 2: return most - static_cast<std::int64_t>(random() % 3);
    case 3: return least + static_cast<std::int64_t>(random() % 3);
    case 4: return -1;
    case 5: return 0;
    case 6: return static_cast<std::int64_t>(random());
    default: return static_cast<std::int64_t>(random() % 8);
  }
}

template <class Field>
void change(Field& field, source& random) {
  if constexpr (std::is_same_v<Field, bool>)
    field = !field;
  else if constexpr (std::is_enum_v<Field>)
    field = static_cast<Field>(static_cast<std::underlying_type_t<Field>>(
        drawn(random, static_cast<std::int64_t>(static_cast<std::underlying_type_t<Field>>(field)))));
  else if constexpr (std::is_same_v<Field, std::optional<bytes>>)
    field = field && random() % 2 == 0 ? std::optional<bytes>{}
                                       : std::optional<bytes>{drawn(random, field ? field->value() : 0)};
  else if constexpr (std::is_same_v<Field, std::int64_t>)
    field = drawn(random, field);
  else
    field = Field{drawn(random, field.value())};
}

/// Changes one field, or takes away, doubles or exchanges an element of one list.
void mutate(plan& p, source& random) {
  const auto lists = [&](auto& list) {
    if (list.empty()) return;
    const std::size_t a = random() % list.size();
    const std::size_t b = random() % list.size();
    auto copy = list[a];
    switch (random() % 3) {
      case 0: list.erase(list.begin() + static_cast<std::ptrdiff_t>(a)); break;
      case 1: list.insert(list.begin() + static_cast<std::ptrdiff_t>(b), copy); break;
      default: std::swap(list[a], list[b]); break;
    }
  };
  if (random() % 4 != 0 || p.replicas.empty()) {
    std::size_t fields = 0;
    each_field(p, [&](auto&) { ++fields; });
    std::size_t chosen = random() % fields;
    each_field(p, [&](auto& field) {
      if (chosen-- == 0) change(field, random);
    });
    return;
  }
  replica_plan& r = p.replicas[random() % p.replicas.size()];
  switch (random() % 6) {
    case 0: lists(p.lengths); break;
    case 1: lists(p.pipeline.stage_device); break;
    case 2: lists(r.devices); break;
    case 3: lists(r.micro_batches); break;
    case 4:
      if (!r.micro_batches.empty()) lists(r.micro_batches[random() % r.micro_batches.size()].cost);
      break;
    default:
      if (!r.devices.empty()) lists(r.devices[random() % r.devices.size()].instructions);
      break;
  }
}

}  // namespace

TEST_CASE("mutations: 20,000 random ones, alone and together, never upset the validator") {
  constexpr std::uint64_t seed = 8'092'024;
  CAPTURE(seed);
  MESSAGE("seed " << seed);
  source random{seed};
  const auto samples = sample_plans::all();
  int alone = 0, reported = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    CAPTURE(trial);
    const plan& sample = samples[random() % samples.size()].second;
    plan p = sample;
    const std::uint64_t changes = random() % 4 == 0 ? 1 + random() % 6 : 1;
    for (std::uint64_t k = 0; k < changes; ++k)
      mutate(p, random);
    const std::vector<violation> found = validate(p);
    CHECK(found.size() <= 20);
    if (changes > 1 || p == sample) continue;
    ++alone;
    if (!found.empty()) ++reported;
  }
  // Not every change breaks a plan: a larger capacity, another dtype or another source row do not.
  CHECK(reported > alone * 9 / 10);
}
